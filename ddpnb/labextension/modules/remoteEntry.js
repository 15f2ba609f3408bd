// The entry of a prebuilt extension of JupyterLab, written by hand: what webpack would generate, without a build.
// JupyterLab hands its own modules to init(), and asks get() for the plugins.
(() => {
  const here = document.currentScript.src;
  let scope = {};

  /** A module of JupyterLab itself; undefined where this page has none of that name, as in Notebook 7. */
  async function shared(name) {
    const versions = Object.values(scope[name] ?? {});
    const chosen = versions.find((version) => version.loaded) ?? versions[0];
    return chosen ? (await chosen.get())() : undefined;
  }

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.ddpnb = {
    init(shareScope) {
      scope = shareScope;
    },
    async get(module) {
      if (module !== "./extension") throw new Error(`ddpnb has no module ${module}.`);
      const { plugins } = await import(new URL("plugin.js", here).href);
      const made = await plugins(shared);
      return () => ({ __esModule: true, default: made });
    },
  };
})();
