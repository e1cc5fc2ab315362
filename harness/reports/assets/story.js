// The story of one call: its events in order, in words.
const phrases = {
  called: (f) => `call made${f.intent?.kind ? `; its program ends ${f.intent.kind}` : ""}`,
  returned: (f) => `tool returned${f.outcome ? `: ${f.outcome}` : ""}${f.raised ? ` by raising ${f.raised}` : ""}`,
  cancelled: () => "given up by its caller",
  lost: () => "lost with its worker",
  call_started: () => "call started",
  permit_granted: (f) => `permit granted${f.waited > 0 ? ` after ${seconds(f.waited)} in line` : " at once"}`,
  permit_released: () => "permit given back",
  attempt_started: (f, n) => `attempt ${n} started`,
  attempt_ended: (f, n) => `attempt ${n} ended: ${f.outcome}${f.status ? ` (HTTP ${f.status})` : ""}`,
  backing_off: (f) => `pause of ${seconds(f.seconds)}${f.asked != null ? ` (the server asked for ${seconds(f.asked)})` : ""}`,
  call_ended: (f) => `call ended: ${f.outcome}${f.executions > 1 ? `, may have run ${f.executions} times` : ""}`,
  arrived: (f, n) => `request ${n} arrived${f.in_flight ? `, ${f.in_flight} in flight` : ""}`,
  started: () => "program started",
  finished: () => "program finished",
  broken_off: () => "program broken off",
  forwarded: () => "passed on to the real sandbox",
  replied: (f) => `the real sandbox replied${f.status ? ` with HTTP ${f.status}` : ""}`,
  upstream_failed: () => "the real sandbox failed",
  strike: (f) => `fault ${f.rule}: ${f.kind} in phase ${f.phase}${f.code_ran ? ` (code ran: ${f.code_ran})` : ""}`,
  answered: (f) => `answered with HTTP ${f.status}${f.client_gone ? ", but the client was gone" : ""}`,
  unanswered: () => "never answered",
};
const told = new Set([
  "waited", "outcome", "status", "seconds", "asked", "executions", "in_flight", "rule", "kind", "phase", "code_ran", "client_gone", "path", "intent", "chars", "infrastructure", "allowed", "raised",
]);

/** What else an event says: short values as words, long ones as blocks of text. */
const fieldsOf = (fields, known) => {
  const blocks = [];
  const short = [];
  for (const [name, value] of Object.entries(fields)) {
    if (known && told.has(name)) continue;
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
  if (event === "strike") line.className = "struck";
  if (previous && previous[3] !== attempt && attempt > 1 && event === "attempt_started") line.classList.add("apart");
  const dot = make("i", {});
  if (fields.outcome) dot.style.setProperty("--swatch", `var(--${fields.outcome})`);
  else if (event === "strike") dot.style.setProperty("--swatch", "var(--event)");
  const [short, blocks] = fieldsOf(fields, Boolean(phrase));
  const words = make("div", {}, make("span", {}, phrase ? phrase(fields, attempt) : event.replaceAll("_", " ")), " ",
    make("span", { class: "source" }, [data.words[source], ...short].join(" · ")), ...blocks);
  line.append(make("span", { class: "at", title: `${(at - start).toFixed(6)} s after the call began` }, `${at.toFixed(3)} s`), dot, words);
  return line;
};

const showStory = (panel, data, call, go) => {
  const outcome = data.outcomes[call[OUTCOME]] ?? "unfinished";
  const dot = make("i", { style: `width:11px;height:11px;border-radius:3px;flex:none;background:var(--${outcome})` });
  const button = (text, label, action) => {
    const one = make("button", { class: "button", type: "button", "aria-label": label, title: label }, text);
    one.addEventListener("click", action);
    return one;
  };
  const worker = data.workers[call[WORKER]];
  const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const summary = [
    outcome, `${seconds(call[END] - call[START])} from ${call[START].toFixed(3)} s`, counted(call[ATTEMPTS], "attempt"),
    counted(call[EXECUTIONS], "execution"), ...(call[STRIKES] ? [counted(call[STRIKES], "fault")] : []), ...(worker ? [worker] : []),
  ];
  const list = make("ol", { tabindex: "0" });
  call[EVENTS].forEach((row, index) => list.append(eventLine(data, row, call[START], call[EVENTS][index - 1])));
  panel.replaceChildren(
    make("header", {},
      make("div", { class: "line" }, dot, make("h2", {}, call[ID]),
        make("div", { class: "buttons" }, button("‹", "Call before", () => go(-1)), button("›", "Next call", () => go(1)),
          button("zoom", "Zoom to this call", () => go(0)), button("×", "Close", () => go(null)))),
      make("p", { class: "summary" }, summary.join(" · "))),
    list);
  panel.hidden = false;
  document.body.classList.add("reading");
};
