// Lanes: calls as bars, packed per worker or one per row. Only the visible rows are drawn.
const [ID, WORKER, START, END, OUTCOME, ATTEMPTS, EXECUTIONS, STRIKES, SPANS, EVENTS] = Array.from({ length: 10 }, (_, i) => i);
const SPAN = 6; // numbers per span: kind, start, end, attempt, outcome, status
const ROW = { worker: 16, call: 20 };

/** Assign calls to rows. Grouped by worker, a call goes into the first row of its worker that is free when it starts. */
const layOut = (data, calls, group) => {
  if (group === "call") return { rows: calls.map((call) => [call]), labels: new Map(calls.map((call, i) => [i, call[ID]])), size: ROW.call };
  const rows = [];
  const labels = new Map();
  data.workers.forEach((name, worker) => {
    const own = calls.filter((call) => call[WORKER] === worker);
    if (!own.length) return;
    labels.set(rows.length, name || "calls");
    const first = rows.length;
    const free = []; // time from which each row of this worker is free
    let hint = 0;
    for (const call of own) {
      let row = -1;
      for (let i = 0; i < free.length; i += 1) {
        const index = (hint + i) % free.length;
        if (free[index] <= call[START]) { row = index; break; }
      }
      if (row < 0) { row = free.length; free.push(0); rows.push([]); }
      hint = own.length > 4000 ? row : 0;
      free[row] = call[END];
      rows[first + row].push(call);
    }
  });
  return { rows, labels, size: ROW.worker };
};

const drawSpan = (pen, spans, at, map, view, middle, half, palette) => {
  const start = spans[at + 1];
  const end = spans[at + 2];
  if (end < view.from || start > view.to) return;
  const x = Math.max(map.x(start), GUTTER);
  const wide = Math.max(Math.min(map.x(end), GUTTER + map.inner) - x, 1);
  const kind = spans[at];
  if (kind === 1) {
    pen.fillStyle = palette.outcomes[spans[at + 4]] ?? palette.faint;
    pen.fillRect(x, middle - half, wide, half * 2);
  } else if (kind === 2) {
    pen.fillStyle = palette.running;
    pen.fillRect(x, middle + half - 3, wide, 3);
  } else if (kind === 0) {
    pen.fillStyle = palette.waiting;
    pen.fillRect(x, middle - 1.5, wide, 3);
  } else {
    pen.fillStyle = palette.faint;
    if (wide < 6) pen.fillRect(x, middle - 0.5, wide, 1);
    else for (let dot = x + 1; dot < x + wide; dot += 5) pen.fillRect(dot, middle - 0.75, 2, 1.5);
  }
};

const drawStrikes = (pen, call, data, map, view, middle, half, palette) => {
  for (const row of call[EVENTS]) {
    if (data.words[row[2]] !== "strike" || row[0] < view.from || row[0] > view.to) continue;
    const x = map.x(row[0]);
    pen.fillStyle = palette.event;
    pen.beginPath();
    pen.moveTo(x, middle - half + 5);
    pen.lineTo(x - 4, middle - half - 1);
    pen.lineTo(x + 4, middle - half - 1);
    pen.fill();
  }
};

const fit = (pen, text, room) => {
  if (pen.measureText(text).width <= room) return text;
  let cut = text;
  while (cut.length > 1 && pen.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
  return `${cut}…`;
};

const drawLanes = (canvas, scroller, data, view, layout) => {
  const height = scroller.clientHeight;
  const [pen, width] = prepare(canvas, height);
  const map = scale(view, width);
  const { rows, labels, size } = layout;
  const top = scroller.scrollTop;
  drawGrid(pen, view, map, height, false);
  const palette = {
    outcomes: data.outcomes.map(colour), waiting: colour("waiting"), faint: colour("faint"), event: colour("event"),
    running: root.dataset.theme === "dark" ? "#0000008c" : "#00000059",
  };
  const half = Math.floor(size / 2) - 2;
  const first = Math.max(0, Math.floor(top / size));
  const last = Math.min(rows.length, Math.ceil((top + height) / size));
  const detailed = (view.to - view.from) / map.inner;
  for (let row = first; row < last; row += 1) {
    const middle = row * size - top + size / 2;
    for (const call of rows[row]) {
      if (call[END] < view.from || call[START] > view.to) continue;
      if (call[ID] === view.selected || call[ID] === view.hovered) {
        const x = Math.max(map.x(call[START]) - 3, GUTTER);
        pen.fillStyle = colour("accent-back");
        pen.fillRect(x, middle - size / 2, Math.min(map.x(call[END]), GUTTER + map.inner) - x + 3, size);
        pen.strokeStyle = colour("accent");
        pen.lineWidth = 1;
        pen.strokeRect(x + 0.5, Math.round(middle - size / 2) + 0.5, Math.min(map.x(call[END]), GUTTER + map.inner) - x + 2, size - 1);
      }
      const spans = call[SPANS];
      for (let at = 0; at < spans.length; at += SPAN) if (spans[at] !== 2) drawSpan(pen, spans, at, map, view, middle, half, palette);
      for (let at = 0; at < spans.length; at += SPAN) if (spans[at] === 2) drawSpan(pen, spans, at, map, view, middle, half, palette);
      if (call[STRIKES] && (call[END] - call[START]) / detailed > 8) drawStrikes(pen, call, data, map, view, middle, half, palette);
    }
  }
  pen.fillStyle = colour("card");
  pen.fillRect(0, 0, GUTTER - 1, height);
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  pen.font = view.group === "call" ? `11px ${colour("mono")}` : `12px ${colour("sans")}`;
  let stuck = null;
  for (const [row, text] of labels) {
    const y = row * size - top;
    if (y < 0) stuck = text;
    if (y > height) break;
    if (view.group === "worker" && y > 0) {
      pen.fillStyle = colour("line");
      pen.fillRect(0, Math.round(y), width, 1);
    }
    if (y < (view.group === "call" ? -size : 0)) continue;
    pen.fillStyle = colour("soft");
    pen.fillText(fit(pen, text, GUTTER - 18), GUTTER - 10, y + size / 2);
  }
  if (stuck !== null && view.group === "worker" && ![...labels.keys()].some((row) => row * size - top >= 0 && row * size - top < size)) {
    pen.fillStyle = colour("soft");
    pen.fillText(fit(pen, stuck, GUTTER - 18), GUTTER - 10, size / 2);
  }
  drawCursor(pen, view, map, height);
};

/** The call at a point of the lanes. */
const callAt = (canvas, scroller, view, layout, x, y) => {
  const map = scale(view, canvas.clientWidth);
  const row = layout.rows[Math.floor((y + scroller.scrollTop) / layout.size)];
  if (!row) return null;
  if (x < GUTTER) return view.group === "call" ? row[0] : null;
  const reach = (view.to - view.from) / map.inner * 3;
  const time = map.time(x);
  let best = null;
  for (const call of row) {
    if (time < call[START] - reach || time > call[END] + reach) continue;
    const off = Math.max(call[START] - time, time - call[END], 0);
    if (best === null || off < best[0]) best = [off, call];
  }
  return best && best[1];
};
