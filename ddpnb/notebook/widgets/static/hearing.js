// anywidget (0.11) gives a script 2 s to load. On a busy machine it takes longer, and its model then drops all messages: what it shows
// would stay as it was at first, without a word.

/** Let a model that drops messages take them, beginning with all of its state. Whether it does is tried with one that says nothing. */
export async function keepHearing(model) {
  const own = await model.widget_manager?.get_model?.(model.get("own"))?.catch(() => undefined);
  const take = own?.comm && Object.getPrototypeOf(Object.getPrototypeOf(own))._handle_comm_msg; // of Jupyter, which waits for nothing
  if (!take) return;
  try {
    await own._handle_comm_msg({ content: { data: { method: "" } } });
  } catch {
    own.comm.on_msg(take.bind(own));
    own.comm.send({ method: "request_state" }, {});
  }
}
