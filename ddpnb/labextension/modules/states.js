// The last state of a dashboard, as its notebook saves it (notebook/kept.py).

const ID = /^ddpnb-([0-9a-f]{12})$/;

/** After a reload of the page JupyterLab does not know which output has which display id: here it is found by what it shows. */
export function keepStates(panel) {
  panel.sessionContext.iopubMessage.connect((_, { header, content }) => {
    const number = header.msg_type === "update_display_data" && ID.exec(content.transient?.display_id)?.[1];
    if (!number) return;
    for (const { outputs } of panel.content.model?.cells ?? [])
      for (let at = 0; at < (outputs?.length ?? 0); at++) {
        const html = outputs.get(at).data["text/html"];
        if (!String(html).includes(`ddpnb-saved-${number}`) || html === content.data["text/html"]) continue;
        outputs.set(at, { output_type: "display_data", data: content.data, metadata: content.metadata });
      }
  });
}
