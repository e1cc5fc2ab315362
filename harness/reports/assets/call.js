// The panel with the events of one call.
const phrases = {
  called: (f) => `call made${f.intent?.kind ? ` (expected: ${f.intent.kind})` : ""}`,
  returned: (f) => (f.raised ? `tool raised ${f.raised}` : `tool returned${f.outcome ? `: ${f.outcome}` : ""}`),
  cancelled: () => "cancelled by the caller",
  lost: () => "lost: its worker died",
  call_started: () => "call started",
  permit_granted: (f) => `permit granted${f.waited > 0 ? ` after ${seconds(f.waited)}` : " immediately"}`,
  permit_released: () => "permit released",
  attempt_started: (f, n) => `attempt ${n} started`,
  attempt_ended: (f, n) => `attempt ${n} ended: ${f.outcome}${f.status ? ` (HTTP ${f.status})` : ""}`,
  backing_off: (f) => `retry in ${seconds(f.seconds)}${f.asked != null ? ` (Retry-After: ${seconds(f.asked)})` : ""}`,
  call_ended: (f) => `call ended: ${f.outcome}${f.executions > 1 ? `; the program may have run ${f.executions} times` : ""}`,
  arrived: (f, n) => `request ${n} arrived${f.in_flight ? `, ${f.in_flight} in flight` : ""}`,
  started: () => "program started",
  finished: () => "program finished",
  broken_off: () => "program aborted",
  forwarded: () => "forwarded to the real sandbox",
  replied: (f) => `the real sandbox replied${f.status ? ` with HTTP ${f.status}` : ""}`,
  upstream_failed: () => "the real sandbox failed",
  strike: (f) => `fault ${f.rule}${f.kind ? `: ${f.kind} in phase ${f.phase}` : ""}${f.code_ran ? ` (code ran: ${f.code_ran})` : ""}`,
  answered: (f) => `answered with HTTP ${f.status}${f.client_gone ? ", but the client had disconnected" : ""}`,
  unanswered: () => "never answered",
  waiting: (f) => `waited ${seconds(f.seconds)} for a permit`,
  attempt: (f, n) => `attempt ${n}: ${f.outcome}${f.status ? ` (HTTP ${f.status})` : ""} after ${seconds(f.seconds)}${f.rule ? `, fault ${f.rule}` : ""}`,
  running: (f) => `the server worked on it for ${seconds(f.seconds)}`,
  pause: (f) => `paused for ${seconds(f.seconds)}`,
  ended: (f) => `ended: ${f.outcome}`,
};
const phrased = new Set([
  "waited", "outcome", "status", "seconds", "asked", "executions", "in_flight", "rule", "kind", "phase", "code_ran", "client_gone", "path", "intent", "chars", "infrastructure", "allowed", "raised",
]);

/** The fields that the phrase leaves out: short values in the line, long ones as blocks of text. */
const fieldsOf = (fields, known) => {
  const blocks = [];
  const short = [];
  for (const [name, value] of Object.entries(fields)) {
    if (known && phrased.has(name)) continue;
    const text = typeof value === "string" ? value : JSON.stringify(value);
    if (text.length > 60 || text.includes("\n")) blocks.push(make("div", { class: "field" }, name), make("pre", {}, text));
    else short.push(`${name} ${text}`);
  }
  return [short, blocks];
};

const eventLine = (data, row, start, previous) => {
  const [at, source, name, attempt, fields = {}] = row;
  const event = data.words[name];
  const phrase = phrases[event];
  const line = make("li", {});
  if (event === "strike") line.className = "strike";
  if (previous && previous[3] !== attempt && attempt > 1 && ["attempt_started", "attempt"].includes(event)) line.classList.add("retry");
  const dot = make("i", {});
  if (fields.outcome) dot.style.setProperty("--swatch", `var(--${fields.outcome})`);
  else if (event === "strike") dot.style.setProperty("--swatch", "var(--event)");
  const [short, blocks] = fieldsOf(fields, Boolean(phrase));
  const words = make("div", {}, make("span", {}, phrase ? phrase(fields, attempt) : event.replaceAll("_", " ")), " ",
    make("span", { class: "source" }, [data.words[source], ...short].join(" · ")), ...blocks);
  line.append(make("span", { class: "at", title: `${(at - start).toFixed(6)} s after the start of the call` }, clock(data.zero, at, 3)), dot, words);
  return line;
};

const showCall = (panel, data, call, go) => {
  const outcome = data.outcomes[call[OUTCOME]] ?? "unfinished";
  const dot = make("i", { style: `width:11px;height:11px;border-radius:3px;flex:none;background:var(--${outcome})` });
  const button = (text, label, action) => {
    const one = make("button", { class: "button", type: "button", "aria-label": label, title: label }, text);
    one.addEventListener("click", action);
    return one;
  };
  const worker = data.workers[call[WORKER]];
  const summary = [
    outcome, `${seconds(call[END] - call[START])} from ${clock(data.zero, call[START], 3)}`, counted(call[ATTEMPTS], "attempt"),
    ...(data.log ? [] : [counted(call[EXECUTIONS], "execution")]), ...(call[STRIKES] ? [counted(call[STRIKES], "fault")] : []), ...(worker ? [worker] : []),
  ];
  const list = make("ol", { tabindex: "0" });
  call[EVENTS].forEach((row, index) => list.append(eventLine(data, row, call[START], call[EVENTS][index - 1])));
  panel.replaceChildren(
    make("header", {},
      make("div", { class: "line" }, dot, make("h2", {}, call[ID]),
        make("div", { class: "buttons" }, button("‹", "Previous call", () => go(-1)), button("›", "Next call", () => go(1)),
          button("zoom", "Zoom to this call", () => go(0)), button("×", "Close", () => go(null)))),
      make("p", { class: "summary" }, summary.join(" · "))),
    list);
  panel.hidden = false;
  document.body.classList.add("with-panel");
};
