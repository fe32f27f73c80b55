"use strict";
// Draws frame after frame of one job. Every frame is whole: nothing is remembered here but what is on the page. Texts are set as
// text, never as markup.
const NS = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
const SIGNS = { come: "+", gone: "−", fault: "✖", heal: "♥", back: "↺", kept: "✔", moved: "⇄", better: "★", left_out: "∅", phase: "▸" };
let hands = null;

const element = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) => fill(document.createElementNS(NS, tag), attributes, children);
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
const whole = (number) => Math.round(number).toLocaleString("en");
function brief(number) {
  const size = Math.abs(number);
  if (size >= 1e6) return (number / 1e6).toFixed(size >= 1e7 ? 0 : 1) + "M";
  if (size >= 1e4) return (number / 1e3).toFixed(size >= 1e5 ? 0 : 1) + "k";
  if (size >= 100 || Number.isInteger(number)) return whole(number);
  return size >= 1 ? number.toFixed(2) : size >= 1e-3 || size === 0 ? number.toFixed(4) : number.toExponential(1);
}
function duration(seconds) {
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
}
const clock = (seconds) => {
  const parts = [Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60].map((part) => String(part).padStart(2, "0"));
  const hours = Math.floor(seconds / 3600);
  return hours ? `${hours}:${parts.join(":")}` : parts.join(":");
};
const bytes = (count) => (count >= 2 ** 30 ? (count / 2 ** 30).toFixed(1) + " GiB" : count >= 2 ** 20 ? (count / 2 ** 20).toFixed(1) + " MiB" : whole(count / 1024) + " KiB");

function draw(frame) {
  if (!frame) return;
  const began = performance.now();
  head(frame);
  conclusion(frame.conclusion);
  tiles(frame);
  lanes(frame);
  cells(frame.members.cells);
  events(frame.events);
  charts(frame);
  time(frame.time);
  blocks(frame.pservers, frame.numbers);
  document.body.dataset.drawMillis = (performance.now() - began).toFixed(1);
  document.body.dataset.phase = frame.phase;
}

function head(frame) {
  const { progress } = frame;
  const part = progress.steps ? Math.min(1, progress.step / progress.steps) : 0;
  const percent = Math.floor(100 * part);
  document.title = `${frame.is_over ? frame.phase : percent + " %"} · ${frame.job} · Shoal`;
  setText(byId("job"), frame.job || "Shoal");
  setText(byId("program"), [frame.program, frame.mode && `(${frame.mode})`].filter(Boolean).join(" "));
  const phase = byId("phase");
  setText(phase, `${frame.phase} · ${duration(frame.now)}`);
  phase.className = "phase" + (frame.phase === "done" ? " good" : frame.phase === "failed" ? " bad" : "");
  const silence = frame.silence && !frame.is_over ? `No answer from the master: ${frame.silence}` : "";
  const waits = frame.waits ? `The job ${frame.waits.cause}. Way out: ${frame.waits.way_out}` : "";
  const why = frame.why || silence || waits;
  banner(why);
  byId("bar").style.width = `${100 * part}%`;
  byId("track").setAttribute("aria-valuenow", percent);
  const words = [`step ${whole(progress.step)} of ${whole(progress.steps)} (${percent} %)`];
  if (progress.epoch) words.push(`epoch ${progress.epoch[0]} of ${progress.epoch[1]}`);
  if (progress.records !== null) words.push(`${whole(progress.records)} records counted`);
  if (progress.eta_seconds !== null) words.push(`about ${duration(progress.eta_seconds)} left`);
  setText(byId("progress"), words.join(" · "));
}
function banner(text) {
  const node = byId("banner");
  node.hidden = !text;
  setText(node, text || "");
}

function conclusion(ended) {
  const node = byId("conclusion");
  node.hidden = !ended || (!ended.hashes.length && !ended.verdicts.length);
  const seen = JSON.stringify(ended);
  if (node.hidden || node.dataset.seen === seen) return;
  node.dataset.seen = seen;
  const hash = (one) => element("div", { class: "hash" }, element("span", {}, `${one.of}: SHA-256`), element("code", {}, one.sha256));
  const [first, second] = ended.hashes;
  const parts = first ? [hash(first)] : [];
  if (second) {
    const same = first.sha256 === second.sha256;
    const sign = element("div", { class: `sign ${same ? "good" : "bad"}`, id: "sign", title: same ? "the same bits" : "other bits" }, same ? "=" : "≠");
    parts.push(sign, hash(second));
  }
  const verdict = ([holds, text]) => element("li", { class: holds ? "good" : "bad" }, `${holds ? "✔" : "✘"} ${text}`);
  node.replaceChildren(
    element("h2", {}, "How it ended"),
    element("div", { class: second ? "hashes" : "hashes one" }, ...parts),
    element("ul", { class: "verdicts" }, ...ended.verdicts.map(verdict)),
    ...(ended.again ? [element("p", { class: "note" }, "Look at it again: ", element("code", {}, ended.again))] : []),
  );
}

function tiles(frame) {
  const { progress, numbers } = frame;
  const all = [];
  const of = (live, wanted) => (live === wanted ? `${live}` : `${live} of ${wanted}`);
  if (numbers) {
    all.push(["trainers", of(numbers.trainers, numbers.trainers_wanted), numbers.trainers < numbers.trainers_wanted]);
    all.push(["pservers", of(numbers.pservers, numbers.pservers_wanted), numbers.pservers < numbers.pservers_wanted]);
    const copies = numbers.copies_filling ? `${numbers.copies_in_sync} + ${numbers.copies_filling} filling` : `${numbers.copies_in_sync}`;
    all.push(["copies of blocks in sync", copies, numbers.copies_filling > 0]);
  }
  if (progress.records_per_second !== null) all.push(["records a second", brief(progress.records_per_second)]);
  if (numbers) {
    const under = numbers.checkpoint_under_way ? ", one under way" : "";
    const newest = numbers.checkpoint ? `${numbers.checkpoint} · version ${whole(numbers.checkpoint_version)}` : "none yet";
    const age = numbers.checkpoint ? `newest checkpoint, ${duration(numbers.checkpoint_age_seconds)} old${under}` : `newest checkpoint${under}`;
    all.push([age, newest]);
  }
  if (progress.rewinds !== null) all.push(["went back", progress.rewinds ? `${progress.rewinds}×` : "never", progress.rewinds > 0]);
  if (progress.records_computed) {
    const share = (100 * progress.records_wasted) / progress.records_computed;
    all.push(["computed in vain", `${share.toFixed(1)} %`]);
  }
  if (progress.records_excluded) all.push(["records left out", whole(progress.records_excluded), true]);
  keyed(byId("tiles"), all, ([name]) => name.split(",")[0], () => element("div", {}, element("b"), element("span")), (node, [name, value, bad]) => {
    node.className = bad ? "tile bad" : "tile";
    setText(node.firstChild, value);
    setText(node.lastChild, bad ? `⚠ ${name}` : name);
  });
}

/// Keeps one node for each item, so that focus and scrolling stay where they are.
function keyed(parent, items, key, make, update) {
  const nodes = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let before = null;
  for (const item of items) {
    const name = String(key(item));
    let node = nodes.get(name);
    if (node) nodes.delete(name);
    else {
      node = make(item);
      node.dataset.key = name;
    }
    const place = before ? before.nextSibling : parent.firstChild;
    if (node !== place) parent.insertBefore(node, place);
    update(node, item);
    before = node;
  }
  for (const node of nodes.values()) node.remove();
}

function lanes(frame) {
  const end = Math.max(frame.now, 1);
  keyed(byId("lanes"), frame.members.lanes, (lane) => `${lane.name}/${lane.pid}`, makeLane, (node, lane) => {
    const [name, picture, buttons] = node.children;
    const isFrozen = lane.to === null && lane.frozen.some(([, to]) => to === null);
    const state = lane.to !== null ? lane.end : isFrozen ? "frozen" : lane.cut ? "cut off" : lane.tasks ? `${lane.tasks} task${lane.tasks > 1 ? "s" : ""}` : "";
    node.className = lane.to === null ? "lane" : "lane gone";
    setText(name.firstChild, lane.name);
    setText(name.lastChild, state ? ` ${state}` : "");
    const span = `${lane.name}, ${lane.role}, since ${duration(lane.from)}${lane.to !== null ? ` until ${duration(lane.to)}: ${lane.end}` : ""}`;
    picture.replaceChildren(picturedLane(lane, end, span));
    if (hands) laneButtons(buttons, lane, isFrozen);
  });
  setText(byId("more"), frame.members.more ? `and ${whole(frame.members.more)} more that are gone` : "");
  if (hands) numberButtons(frame);
}
function makeLane() {
  return element("div", {}, element("div", { class: "name" }, element("span"), element("small")), element("div", { class: "picture" }), element("div", { class: "buttons" }));
}
function picturedLane(lane, end, span) {
  const x = (seconds) => (1000 * seconds) / end;
  const to = lane.to === null ? end : lane.to;
  const picture = shape("svg", { viewBox: "0 0 1000 18", preserveAspectRatio: "none", role: "img", "aria-label": span }, shape("title", {}, span));
  const stretch = (from, until, attributes) => shape("rect", { x: x(from), width: Math.max(2, x(until) - x(from)), y: 3, height: 12, ...attributes });
  picture.append(shape("rect", { class: "rail", x: 0, y: 8, width: 1000, height: 2 }), stretch(lane.from, to, { class: `bar-${lane.role}` }));
  for (const [from, until] of lane.frozen) picture.append(stretch(from, until === null ? to : until, { fill: "url(#frozen)" }));
  if (lane.cut && lane.to === null) picture.append(stretch(Math.max(lane.from, end - end / 20), end, { fill: "url(#cut)" }));
  if (lane.to !== null) {
    const [at, left] = [Math.min(x(to), 996), lane.end === "left" || lane.end === "ended"];
    picture.append(shape("path", { class: left ? "left" : "end", d: left ? `M${at} 2V16` : `M${at - 4} 3L${at + 4} 15M${at + 4} 3L${at - 4} 15`, "vector-effect": "non-scaling-stroke" }));
  }
  return picture;
}
function button(label, what, action, disabled) {
  const node = element("button", { type: "button", "aria-label": what, title: what }, label);
  node.disabled = Boolean(disabled);
  node.addEventListener("click", () => act(action));
  return node;
}
function laneButtons(parent, lane, isFrozen) {
  const { name, role } = lane;
  const seen = lane.to !== null ? "gone" : [isFrozen, lane.cut].join();
  if (parent.dataset.seen === seen) return;
  parent.dataset.seen = seen;
  const had = parent.contains(document.activeElement) ? document.activeElement.dataset.slot : null;
  const all = [];
  if (lane.to === null) {
    all.push(button("kill -9", `kill ${name} with SIGKILL`, { action: "kill", name }));
    all.push(isFrozen ? button("thaw", `thaw ${name} with SIGCONT`, { action: "thaw", name }) : button("freeze", `freeze ${name} with SIGSTOP`, { action: "freeze", name }));
    all.push(
      lane.cut
        ? button("heal link", `let packets of ${name} through again`, { action: "heal", name })
        : button("cut link", hands.no_network ? `cut the link of ${name}: ${hands.no_network}` : `cut ${name} off from all others`, { action: "cut", name }, hands.no_network),
    );
    if (role === "pserver") all.push(button("move blocks", `move the blocks of ${name} to another pserver`, { action: "move", name }));
  }
  all.forEach((node, at) => (node.dataset.slot = at));
  parent.replaceChildren(...all);
  // Whoever works with the keyboard stays where they were.
  if (had !== null && all[had]) all[had].focus();
}
function numberButtons(frame) {
  const parent = byId("numbers-of");
  parent.hidden = frame.is_over;
  if (parent.children.length) return;
  for (const role of ["trainer", "pserver"]) {
    parent.append(button(`+ ${role}`, `add a ${role}`, { action: "add", role }), button(`− ${role}`, `remove a ${role}`, { action: "remove", role }));
  }
}
async function act(action) {
  const answer = byId("answer");
  setText(answer, "…");
  try {
    const reply = await fetch("do", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(action) });
    const { done, refused } = await reply.json();
    setText(answer, done || `Not done: ${refused}`);
  } catch {
    setText(answer, "Not done: the run's server does not answer");
  }
}

function cells(crowd) {
  const parent = byId("cells");
  if (!crowd) {
    parent.replaceChildren();
    return;
  }
  const count = crowd.letters.length;
  const columns = Math.ceil(Math.sqrt(count * 5));
  const size = 1000 / columns;
  const path = { b: "", i: "" };
  for (let at = 0; at < count; at++) {
    const [x, y] = [(at % columns) * size, Math.floor(at / columns) * size];
    path[crowd.letters[at]] += `M${x.toFixed(1)} ${y.toFixed(1)}h${(size * 0.8).toFixed(1)}v${(size * 0.8).toFixed(1)}h-${(size * 0.8).toFixed(1)}z`;
  }
  const words = `${whole(count)} trainers: ${whole(crowd.busy)} have tasks in hand, ${whole(crowd.idle)} have none`;
  const picture = shape("svg", { viewBox: `0 -1 1000 ${Math.ceil(count / columns) * size + 1}`, role: "img", "aria-label": words });
  picture.append(shape("path", { class: "cell-b", d: path.b }), shape("path", { class: "cell-i", d: path.i }));
  parent.replaceChildren(picture, element("p", { class: "note" }, words));
}

function events(all) {
  const newest = all.slice(-100).reverse();
  keyed(byId("events"), newest, ([at, kind, text]) => `${at}/${kind}/${text}`, ([at, kind, text]) => {
    const sign = element("i", { "aria-hidden": "true" }, SIGNS[kind] || "▸");
    return element("li", { class: `of-${kind}` }, element("time", {}, clock(at)), sign, element("span", {}, text));
  }, () => {});
}

function charts(frame) {
  const { curves } = frame;
  const over = (name, ys, unit) => ({ name, xs: curves.at, ys, unit, x: duration });
  const all = [];
  if (curves.at.length > 1) {
    if (curves.loss) all.push({ ...over("loss of a record", curves.loss, "") });
    all.push(over("records a second", curves.records_per_second, ""), over("steps a second", curves.steps_per_second, ""));
    all.push({ ...over("trainers", curves.trainers, ""), stepped: true, zero: true });
  }
  for (const metric of (frame.metrics && frame.metrics.curves) || []) {
    const [xs, ys, best] = [0, 1, 2].map((at) => metric.points.map((point) => point[at]));
    if (xs.length) all.push({ name: metric.name, xs, ys, best: best.lastIndexOf(true), unit: "", x: (step) => `step ${whole(step)}` });
  }
  keyed(byId("charts"), all, (one) => one.name, () => {
    const node = element("div", { class: "card chart" }, element("h2", {}, element("span"), element("output")), element("div"));
    node.addEventListener("pointermove", (event) => point(node, event));
    node.addEventListener("pointerleave", () => point(node, null));
    return node;
  }, chart);
}
const [HEIGHT, LEFT, BOTTOM, TOP] = [150, 46, 20, 8];
function chart(node, one) {
  // As wide as there is room, so that letters are as large as elsewhere.
  const WIDTH = Math.max(220, Math.round(node.lastChild.clientWidth) || 480);
  const known = one.xs.map((x, at) => [x, one.ys[at]]).filter(([, y]) => y !== null && Number.isFinite(y));
  if (!known.length) return;
  const ys = known.map(([, y]) => y);
  let [low, high] = [one.zero || Math.min(...ys) >= 0 && Math.min(...ys) < Math.max(...ys) / 2 ? 0 : Math.min(...ys), Math.max(...ys)];
  if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const [first, last] = [known.length > 1 ? known[0][0] : 0, known[known.length - 1][0] || 1];
  const x = (value) => LEFT + ((WIDTH - LEFT - 8) * (value - first)) / (last - first || 1);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (value - low)) / (high - low);
  setText(node.querySelector("h2 span"), one.name);
  const newest = brief(ys[ys.length - 1]);
  if (!node.dataset.pointed) setText(node.querySelector("output"), newest);
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${one.name}: ${newest} now, between ${brief(Math.min(...ys))} and ${brief(Math.max(...ys))}` });
  for (const value of [low, (low + high) / 2, high]) {
    picture.append(shape("line", { class: "gridline", x1: LEFT, x2: WIDTH - 8, y1: y(value), y2: y(value) }));
    picture.append(shape("text", { class: "axis", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, brief(value)));
  }
  picture.append(shape("text", { class: "axis", x: LEFT, y: HEIGHT - 5 }, one.x(first)));
  picture.append(shape("text", { class: "axis", x: WIDTH - 8, y: HEIGHT - 5, "text-anchor": "end" }, one.x(last)));
  const points = known.map(([at, value], index) => {
    const [to, up] = [x(at).toFixed(1), y(value).toFixed(1)];
    return index === 0 ? `M${to} ${up}` : one.stepped ? `H${to}V${up}` : `L${to} ${up}`;
  });
  picture.append(shape("path", { class: "curve", d: points.join("") }));
  if (known.length < 3) for (const [at, value] of known) picture.append(shape("circle", { class: "dot", cx: x(at), cy: y(value), r: 3 }));
  if (one.best >= 0 && one.ys[one.best] !== undefined) picture.append(shape("circle", { class: "best", cx: x(one.xs[one.best]), cy: y(one.ys[one.best]), r: 5 }, shape("title", {}, "the best")));
  node.lastChild.replaceChildren(picture);
  node.drawn = { known, x, one, newest, width: WIDTH };
  if (node.dataset.pointed) mark(node, Number(node.dataset.pointed));
}
function point(node, event) {
  if (!node.drawn) return;
  if (!event) {
    delete node.dataset.pointed;
    node.querySelectorAll(".cursor").forEach((cursor) => cursor.remove());
    setText(node.querySelector("output"), node.drawn.newest);
    return;
  }
  const box = node.lastChild.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * node.drawn.width;
  node.dataset.pointed = at;
  mark(node, at);
}
function mark(node, at) {
  const { known, x, one } = node.drawn;
  const [when, value] = known.reduce((best, next) => (Math.abs(x(next[0]) - at) < Math.abs(x(best[0]) - at) ? next : best));
  node.querySelectorAll(".cursor").forEach((cursor) => cursor.remove());
  node.querySelector("svg").append(shape("line", { class: "cursor", x1: x(when), x2: x(when), y1: TOP, y2: HEIGHT - BOTTOM }));
  setText(node.querySelector("output"), `${brief(value)} at ${one.x(when)}`);
}

function time(spent) {
  const parent = byId("time");
  if (!spent || !spent.whole) {
    if (!parent.children.length) parent.append(element("p", { class: "note" }, "nothing has been computed yet"));
    return;
  }
  const rows = [["the last 10 s", spent.lately], ["since the beginning", spent.whole]].filter(([, parts]) => parts);
  const stack = ([name, parts]) => {
    const words = parts.map(([part, share]) => `${part} ${Math.round(100 * share)} %`).join(", ");
    const shares = element("div", { class: "shares", "aria-hidden": "true" });
    for (const [part, share] of parts) {
      const node = element("span", { class: `part-${part}${share < 0.14 ? " narrow" : ""}` }, part);
      node.style.flex = `${share} 0 0`;
      shares.append(node);
    }
    return element("div", { class: "stack" }, element("p", {}, `${name}: ${words}`), shares);
  };
  const advice = spent.advice ? [element("p", { class: "note" }, spent.advice)] : [];
  parent.replaceChildren(...rows.map(stack), ...advice);
}

function blocks(servers, numbers) {
  const parent = byId("blocks");
  if (!servers || !servers.each.length) {
    parent.replaceChildren(element("p", { class: "note" }, "no pserver has blocks now"));
    return;
  }
  const most = Math.max(...servers.each.map((one) => one.blocks + one.copies), 1);
  const row = (one) => {
    const words = `${one.blocks} block${one.blocks === 1 ? "" : "s"}, ${one.copies} cop${one.copies === 1 ? "y" : "ies"} of others', ${bytes(one.bytes)}${one.leaving ? ": it leaves" : ""}`;
    const width = Math.min(16, 480 / most);
    const picture = shape("svg", { viewBox: "0 0 480 16", preserveAspectRatio: "xMinYMid meet", role: "img", "aria-label": words });
    if (most <= 120) {
      for (let at = 0; at < one.blocks + one.copies; at++) {
        picture.append(shape("rect", { class: at < one.blocks ? "block" : "copy", x: at * width + 1, y: 2, width: Math.max(1, width - 2.5), height: 12 }));
      }
    } else {
      picture.append(shape("rect", { class: "block", x: 0, y: 2, width: (480 * one.blocks) / most, height: 12 }));
      picture.append(shape("rect", { class: "copy", x: (480 * one.blocks) / most, y: 2.5, width: (480 * one.copies) / most, height: 11 }));
    }
    return element("div", { class: "server" }, element("span", {}, one.name), element("div", {}, picture, words));
  };
  const more = servers.more ? [element("p", { class: "note" }, `and ${servers.more} more pservers`)] : [];
  const place = numbers && numbers.checkpoints ? [element("p", { class: "note" }, "checkpoints lie in ", element("code", {}, numbers.checkpoints))] : [];
  parent.replaceChildren(...servers.each.map(row), ...more, ...place);
}

const stream = new EventSource("events");
let isOver = false;
stream.addEventListener("hands", (event) => (hands = JSON.parse(event.data)));
stream.addEventListener("frame", (event) => draw(JSON.parse(event.data)));
stream.addEventListener("over", () => {
  isOver = true;
  stream.close();
  byId("numbers-of").hidden = true;
  document.querySelectorAll("button").forEach((node) => (node.disabled = true));
});
stream.addEventListener("error", () => {
  if (!isOver) banner("The page's server does not answer: the command that served it has ended, or its machine is out of reach. This is what was seen last.");
});
// The cookie has the token by now: an address without it can be shown to others.
if (location.search) history.replaceState(null, "", location.pathname);
