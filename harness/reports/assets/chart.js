// The strips above the lanes: time, requests in flight and the limit, waiting calls, faults and events.
let GUTTER = 112; // room for labels on the left; less on a small screen
const RIGHT = 14;
const STRIPS = { axis: [0, 24], flight: [36, 100], queue: [154, 48], events: [244, 22] }; // top and height
const CHART_HEIGHT = 274;

/** Size and clear a canvas, in CSS pixels on any screen. */
const prepare = (canvas, height) => {
  const ratio = devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  GUTTER = width < 600 ? 74 : 112;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return [pen, width];
};

const scale = (view, width) => {
  const inner = Math.max(width - GUTTER - RIGHT, 10);
  const span = view.to - view.from || 1;
  return {
    x: (time) => GUTTER + ((time - view.from) / span) * inner,
    time: (x) => view.from + ((x - GUTTER) / inner) * span,
    inner,
  };
};

/** Steps of a clock, in seconds. */
const CLOCK = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** A time as text; with a zero, which is the unix time of the page's start, it is a time of day in UTC. */
const clock = (zero, value, digits) => {
  const moment = new Date((zero + value) * 1000);
  if (zero === undefined || Number.isNaN(moment.getTime())) return `${value.toFixed(digits)} s`;
  return moment.toISOString().slice(11, digits ? 23 : 19);
};

const ticks = (from, to, wanted, zero) => {
  const wide = CLOCK.find((step) => step >= (to - from) / Math.max(wanted, 1));
  if (zero !== undefined && to - from > 2 && wide) {
    const found = [];
    for (let time = Math.ceil((zero + from) / wide) * wide; time <= zero + to; time += wide) found.push([time - zero, clock(0, time, 0)]);
    return found;
  }
  const rough = (to - from) / Math.max(wanted, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  const found = [];
  for (let index = Math.ceil(from / step); index * step <= to + step * 1e-6; index += 1) found.push(index * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return found.map((value) => [value, clock(zero, value, digits)]);
};

/** The value of a step series at a time. */
const valueAt = ([times, values], time) => {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low ? values[low - 1] : 0;
};

/** Lowest, highest and mean value per pixel column. */
const columnsOf = (series, map, view) => {
  const [times, values] = series;
  const columns = [];
  let index = times.findIndex((time) => time > view.from);
  let value = valueAt(series, view.from);
  for (let pixel = 0; pixel < map.inner; pixel += 1) {
    const from = map.time(GUTTER + pixel);
    const to = map.time(GUTTER + pixel + 1);
    let [low, high, sum, since] = [value, value, 0, from];
    while (index >= 0 && index < times.length && times[index] < to) {
      sum += value * (times[index] - since);
      since = times[index];
      value = values[index];
      low = Math.min(low, value);
      high = Math.max(high, value);
      index += 1;
    }
    columns.push([low, high, (sum + value * (to - since)) / (to - from || 1)]);
  }
  return columns;
};

const line = (pen, path, style, dash = [], width = 1.5) => {
  pen.strokeStyle = style;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.stroke(path);
  pen.setLineDash([]);
};

/** Draw every step of a series; if several share a pixel, draw their range as a band and their mean as a line. */
const drawSteps = (pen, series, map, view, [top, height], peak, stroke, fill, dash = []) => {
  const [times, values] = series;
  if (!times.length) return;
  const y = (value) => top + height - (value / (peak || 1)) * height;
  const inside = times.filter((time) => time > view.from && time <= view.to).length;
  const path = new Path2D();
  const right = map.x(view.to);
  if (inside > map.inner) {
    const columns = columnsOf(series, map, view);
    pen.fillStyle = fill ?? "transparent";
    columns.forEach(([low, high, mean], pixel) => {
      const x = GUTTER + pixel;
      pen.fillRect(x, y(high), 1, Math.max(y(low) - y(high), 1));
      pen.fillRect(x, y(low), 1, top + height - y(low));
      path.lineTo(x, y(mean));
    });
    line(pen, path, stroke, dash, fill ? 1.25 : 1);
    return;
  }
  let value = valueAt(series, view.from);
  const begin = dash.length && times[0] > view.from ? map.x(times[0]) : GUTTER;
  if (begin > GUTTER) [value] = values;
  path.moveTo(begin, y(value));
  for (let index = 0; index < times.length && times[index] <= view.to; index += 1) {
    if (times[index] <= view.from) continue;
    const x = map.x(times[index]);
    path.lineTo(x, y(value));
    value = values[index];
    path.lineTo(x, y(value));
  }
  path.lineTo(right, y(value));
  if (fill) {
    const area = new Path2D(path);
    area.lineTo(right, top + height);
    area.lineTo(GUTTER, top + height);
    pen.fillStyle = fill;
    pen.fill(area);
  }
  line(pen, path, stroke, dash);
};

const drawGrid = (pen, view, map, height, labels) => {
  pen.font = `11px ${colour("sans")}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const [time, text] of ticks(view.from, view.to, map.inner / 110, view.zero)) {
    const x = Math.round(map.x(time)) + 0.5;
    pen.strokeStyle = colour("line-soft");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, labels ? STRIPS.axis[1] : 0);
    pen.lineTo(x, height);
    pen.stroke();
    if (labels && x > GUTTER - 2 && x < GUTTER + map.inner - 8) {
      pen.fillStyle = colour("faint");
      pen.fillText(text, x, 13);
    }
  }
};

const stripLabel = (pen, [top, height], name, peak) => {
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  pen.fillStyle = colour("soft");
  pen.font = `${GUTTER < 100 ? 11 : 12}px ${colour("sans")}`;
  pen.fillText(name, GUTTER - (peak === null ? 10 : 26), top + height / 2);
  pen.fillStyle = colour("faint");
  pen.font = `10.5px ${colour("sans")}`;
  if (peak !== null) {
    pen.fillText(String(peak), GUTTER - 6, top + 1);
    pen.fillText("0", GUTTER - 6, top + height - 1);
  }
  pen.strokeStyle = colour("line");
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(GUTTER, top + height + 0.5);
  pen.lineTo(GUTTER + 1e5, top + height + 0.5);
  pen.stroke();
};

const peakOf = (...series) => Math.max(1, ...series.map(([, values]) => values.reduce((a, b) => Math.max(a, b), 0)));

/** Marks of single requests and permits stay in their strip; those of workers and servers cross the chart. */
const isSmall = (kind) => kind === "strike" || kind === "expired" || kind === "fenced";

const drawMarks = (pen, marks, map, view, [top, height]) => {
  const strikes = new Map();
  const permits = new Map();
  for (const [at, kind, , , until] of marks) {
    if ((until ?? at) < view.from || at > view.to) continue;
    if (isSmall(kind)) {
      const pixel = Math.round(map.x(at) / 3) * 3;
      const counted = kind === "strike" ? strikes : permits;
      counted.set(pixel, (counted.get(pixel) ?? 0) + 1);
    } else {
      const x = map.x(Math.max(at, view.from));
      if (until !== null) {
        pen.fillStyle = colour("shade");
        pen.fillRect(x, STRIPS.axis[1], Math.max(map.x(Math.min(until, view.to)) - x, 1), CHART_HEIGHT - STRIPS.axis[1]);
      }
      pen.strokeStyle = colour("event");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(Math.round(x) + 0.5, STRIPS.axis[1]);
      pen.lineTo(Math.round(x) + 0.5, CHART_HEIGHT);
      pen.stroke();
    }
  }
  for (const [counts, name] of [[strikes, "sandbox_error"], [permits, "queue"]]) {
    const most = Math.max(1, ...counts.values());
    pen.fillStyle = colour(name);
    for (const [pixel, count] of counts) {
      const size = 5 + (height - 7) * (most > 1 ? (count - 1) / (most - 1) : 0) * 0.75;
      pen.fillRect(pixel - 1, top + height - size, 2, size);
    }
  }
  const free = [-Infinity, -Infinity]; // x from which each of the two label rows is free
  pen.font = `600 11px ${colour("sans")}`;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  for (const [at, kind, text, , until] of marks) {
    if (kind === "strike" || (until ?? at) < view.from || at > view.to) continue;
    const wide = pen.measureText(text).width;
    const x = Math.min(map.x(Math.max(at, view.from)) + 5, GUTTER + map.inner - wide);
    const row = free.findIndex((end) => x >= end);
    if (row < 0 || (row > 0 && isSmall(kind))) continue;
    const y = top - 12 - 14 * row;
    pen.fillStyle = colour("card");
    pen.fillRect(x - 2, y - 7, wide + 4, 14);
    pen.fillStyle = colour(isSmall(kind) ? "queue" : "event");
    pen.fillText(text, x, y);
    free[row] = x + wide + 10;
  }
};

const drawCursor = (pen, view, map, height) => {
  if (view.cursor === null) return;
  const x = Math.round(map.x(view.cursor)) + 0.5;
  if (x < GUTTER) return;
  pen.strokeStyle = colour("faint");
  pen.lineWidth = 1;
  pen.setLineDash([3, 3]);
  pen.beginPath();
  pen.moveTo(x, 0);
  pen.lineTo(x, height);
  pen.stroke();
  pen.setLineDash([]);
};

const drawChart = (canvas, data, view) => {
  const [pen, width] = prepare(canvas, CHART_HEIGHT);
  const map = scale(view, width);
  drawGrid(pen, view, map, CHART_HEIGHT, true);
  const peak = peakOf(data.inFlight, data.atServer, data.limit);
  const queue = peakOf(data.waiting);
  drawSteps(pen, data.inFlight, map, view, STRIPS.flight, peak, colour("series"), colour("series-fill"));
  drawSteps(pen, data.atServer, map, view, STRIPS.flight, peak, colour("server"), null, [1, 3]);
  drawSteps(pen, data.limit, map, view, STRIPS.flight, peak, colour("limit"), null, [6, 4]);
  drawSteps(pen, data.waiting, map, view, STRIPS.queue, queue, colour("queue"), colour("queue-fill"));
  drawMarks(pen, data.marks, map, view, STRIPS.events);
  stripLabel(pen, STRIPS.flight, "in flight", peak);
  stripLabel(pen, STRIPS.queue, "waiting", queue);
  stripLabel(pen, STRIPS.events, "faults", null);
  drawCursor(pen, view, map, CHART_HEIGHT);
  if (view.drag) {
    const [from, to] = view.drag.map(map.x);
    pen.fillStyle = colour("series-fill");
    pen.fillRect(Math.min(from, to), STRIPS.axis[1], Math.abs(to - from), CHART_HEIGHT);
  }
};
