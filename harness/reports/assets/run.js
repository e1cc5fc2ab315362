// The page of a run: filters, zoom, tooltips, selection.
const data = JSON.parse(byId("data").textContent);
const chart = byId("chart");
const lanes = byId("lanes");
const scroller = byId("rows");
const tip = byId("tip");
const margin = (data.end - data.start) * 0.01 || 0.5;
const whole = [data.start - margin, data.end + margin];
const view = { zero: data.zero, from: whole[0], to: whole[1], group: "worker", only: new Set(), query: "", cursor: null, drag: null, selected: null, hovered: null };
let calls = data.calls;
let layout = layOut(data, calls, view.group);
let frame = 0;

const draw = () => {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawChart(chart, data, view);
    drawLanes(lanes, scroller, data, view, layout);
  });
};

const refit = () => {
  const wanted = layout.rows.length * layout.size;
  scroller.style.height = `${Math.max(60, Math.min(wanted + 6, Math.round(innerHeight * 0.62)))}px`;
  byId("spacer").style.height = `${Math.max(wanted, scroller.clientHeight)}px`;
  byId("shown").textContent = calls.length === data.calls.length
    ? counted(calls.length, "call") : `${calls.length.toLocaleString("en")} of ${counted(data.calls.length, "call")} shown`;
  draw();
};

const reveal = (call) => {
  const row = layout.rows.findIndex((one) => one.includes(call));
  const top = row * layout.size;
  if (row >= 0 && (top < scroller.scrollTop || top + layout.size > scroller.scrollTop + scroller.clientHeight))
    scroller.scrollTop = top - scroller.clientHeight / 2;
};

const filter = () => {
  const query = view.query.toLowerCase();
  calls = data.calls.filter((call) => (!view.only.size || view.only.has(call[OUTCOME])) && (!query || call[ID].toLowerCase().includes(query)));
  layout = layOut(data, calls, view.group);
  scroller.scrollTop = 0;
  refit();
  const chosen = calls.find((call) => call[ID] === view.selected);
  if (chosen) reveal(chosen);
};

const zoom = (from, to) => {
  const least = Math.max((whole[1] - whole[0]) * 1e-6, 1e-6);
  const size = Math.min(Math.max(to - from, least), whole[1] - whole[0]);
  const start = Math.min(Math.max(from, whole[0]), whole[1] - size);
  [view.from, view.to] = [start, start + size];
  draw();
};

const zoomBy = (factor, around = (view.from + view.to) / 2) =>
  zoom(around - (around - view.from) * factor, around + (view.to - around) * factor);

const select = (call) => {
  view.selected = call ? call[ID] : null;
  if (!call) {
    byId("panel").hidden = true;
    document.body.classList.remove("with-panel");
  } else {
    reveal(call);
    showCall(byId("panel"), data, call, (step) => {
      if (step === null) select(null);
      else if (step === 0) zoom(call[START] - (call[END] - call[START]) * 0.2, call[END] + (call[END] - call[START]) * 0.2);
      else select(calls[calls.indexOf(call) + step] ?? call);
    });
  }
  draw();
};

const showTip = (event, ...lines) => {
  tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
};

const hideTip = () => {
  tip.hidden = true;
  view.cursor = view.hovered = null;
  draw();
};

const pointerPosition = (canvas, event) => {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left;
  return [x, event.clientY - box.top, scale(view, box.width).time(x)];
};

for (const [index, outcome] of data.outcomes.entries()) {
  const count = data.calls.reduce((sum, call) => sum + (call[OUTCOME] === index), 0);
  if (!count) continue;
  const swatch = make("i", {});
  swatch.style.setProperty("--swatch", `var(--${outcome})`);
  const chip = make("button", { class: "button chip", type: "button", "aria-pressed": "false", "data-outcome": outcome },
    swatch, outcome, make("span", {}, count.toLocaleString("en")));
  chip.addEventListener("click", () => {
    const pressed = view.only.has(index);
    if (pressed) view.only.delete(index);
    else view.only.add(index);
    chip.setAttribute("aria-pressed", String(!pressed));
    filter();
  });
  byId("chips").append(chip);
}
if (!data.calls.length) byId("chips").append(make("span", { class: "hint" }, "no calls"));

for (const button of document.querySelectorAll("[data-group]")) {
  button.setAttribute("aria-pressed", String(button.dataset.group === view.group));
  button.addEventListener("click", () => {
    view.group = button.dataset.group;
    for (const other of document.querySelectorAll("[data-group]")) other.setAttribute("aria-pressed", String(other === button));
    filter();
  });
}
for (const button of document.querySelectorAll("[data-zoom]"))
  button.addEventListener("click", () => ({ in: () => zoomBy(0.5), out: () => zoomBy(2), all: () => zoom(...whole) })[button.dataset.zoom]());
for (const button of document.querySelectorAll("[data-call]"))
  button.addEventListener("click", () => {
    const call = data.calls.find((one) => one[ID] === button.dataset.call);
    if (call) select(call);
  });
for (const button of document.querySelectorAll("[data-at]"))
  button.addEventListener("click", () => {
    const at = Number(button.dataset.at);
    const size = (whole[1] - whole[0]) / 10;
    zoom(at - size / 2, at + size / 2);
    view.cursor = at;
    byId("board").scrollIntoView({ block: "start" });
    draw();
  });
byId("search").addEventListener("input", (event) => { view.query = event.target.value; filter(); });
byId("copy")?.addEventListener("click", async () => {
  getSelection().selectAllChildren(byId("command"));
  try { await navigator.clipboard.writeText(byId("command").textContent); byId("copy").textContent = "copied"; } catch { /* not allowed; the text is selected */ }
});

chart.addEventListener("pointerdown", (event) => {
  const [x, , time] = pointerPosition(chart, event);
  if (x < GUTTER || event.button) return;
  chart.setPointerCapture(event.pointerId);
  view.drag = [time, time];
});
chart.addEventListener("pointermove", (event) => {
  const [x, , time] = pointerPosition(chart, event);
  if (view.drag) view.drag[1] = time;
  if (x < GUTTER) return hideTip();
  view.cursor = time;
  const reach = (view.to - view.from) / scale(view, chart.clientWidth).inner * 4;
  const near = data.marks.filter(([at, , , , until]) => at - reach <= time && (until ?? at) + reach >= time);
  const limit = data.limit[0].length ? ` of ${valueAt(data.limit, time)}` : "";
  showTip(event, clock(data.zero, time, 3), `in flight ${valueAt(data.inFlight, time)}${limit}, at the server ${valueAt(data.atServer, time)}`,
    `waiting ${valueAt(data.waiting, time)}`, ...near.slice(0, 4).map(([, , text, call]) => (call ? `${text} (${call})` : text)),
    ...(near.length > 4 ? [`and ${near.length - 4} more`] : []));
  draw();
});
chart.addEventListener("pointerup", () => {
  const [from, to] = view.drag ?? [0, 0];
  view.drag = null;
  if (Math.abs(to - from) > (view.to - view.from) / 100) zoom(Math.min(from, to), Math.max(from, to));
  draw();
});
chart.addEventListener("pointerleave", hideTip);
lanes.addEventListener("pointermove", (event) => {
  const [x, y, time] = pointerPosition(lanes, event);
  view.cursor = x < GUTTER ? null : time;
  const call = callAt(lanes, scroller, view, layout, x, y);
  view.hovered = call ? call[ID] : null;
  if (!call) tip.hidden = true;
  else {
    const faults = call[STRIKES] ? `, ${counted(call[STRIKES], "fault")}` : "";
    showTip(event, make("b", {}, call[ID]), `${data.outcomes[call[OUTCOME]] ?? "unfinished"} after ${seconds(call[END] - call[START])}`,
      `${counted(call[ATTEMPTS], "attempt")}${faults}${data.workers[call[WORKER]] ? `, ${data.workers[call[WORKER]]}` : ""}`);
  }
  draw();
});
lanes.addEventListener("pointerleave", hideTip);
lanes.addEventListener("click", (event) => {
  const [x, y] = pointerPosition(lanes, event);
  select(callAt(lanes, scroller, view, layout, x, y));
});
for (const canvas of [chart, lanes]) {
  canvas.addEventListener("dblclick", () => zoom(...whole));
  // A plain wheel scrolls the page; with ctrl (as a pinch sends it) it zooms, with shift it moves in time.
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoomBy(event.deltaY > 0 ? 1.25 : 0.8, pointerPosition(canvas, event)[2]);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = ((event.deltaX || event.deltaY) / canvas.clientWidth) * (view.to - view.from);
      zoom(view.from + by, view.to + by);
    } else return;
    event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const by = (view.to - view.from) * 0.15;
    const chosen = calls.findIndex((call) => call[ID] === view.selected);
    const action = {
      "+": () => zoomBy(0.6), "=": () => zoomBy(0.6), "-": () => zoomBy(1.6), 0: () => zoom(...whole),
      ArrowLeft: () => zoom(view.from - by, view.to - by), ArrowRight: () => zoom(view.from + by, view.to + by),
      ArrowDown: () => select(calls[Math.min(chosen + 1, calls.length - 1)]), ArrowUp: () => select(calls[Math.max(chosen - 1, 0)]),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
addEventListener("keydown", (event) => { if (event.key === "Escape") select(null); });
scroller.addEventListener("scroll", draw);
new ResizeObserver(refit).observe(byId("board")); // also when the panel opens
addEventListener("resize", refit);
themeChanged.push(draw);
refit();
