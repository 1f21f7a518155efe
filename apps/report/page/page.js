// The page: settings, tables of results and configuration, and the sections in their order.

const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const settings = {x: "step", smoothing: 0.6, log: false, zoom: null, theme: "auto", reload: true, ...storedSettings()};

// A browser may refuse storage to a page from disk; the settings then begin again with each reload.
function storedSettings() {
  try {
    return JSON.parse(sessionStorage.getItem("convoy-report")) || {};
  } catch {
    return {};
  }
}
function changed() {
  try {
    sessionStorage.setItem("convoy-report", JSON.stringify(settings));
  } catch { /* see storedSettings() */ }
  redraw();
}

const darkScheme = matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  const dark = settings.theme === "dark" || (settings.theme === "auto" && darkScheme.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}
darkScheme.addEventListener("change", applyTheme);

function formatDuration(seconds) {
  const whole = Math.round(seconds), two = d3.format("02d");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  if (whole < 60) return `${d3.format(".3~g")(seconds)} s`;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)} h` : `${minutes}:${two(whole % 60)} min`;
}
const formatRate = d3.format(",.0f");
const formatLoss = (loss) => d3.format(loss < 1e4 ? ".4f" : ".2e")(loss);
const formatValue = (value) => value === null || value === undefined ? "–"
    : Array.isArray(value) ? value.join(", ") || "none" : value === "" ? "none" : String(value);

function swatch(i) {
  const line = make("span", {className: "swatch"});
  line.style.borderColor = color(i);
  line.style.borderTopStyle = ["solid", "dashed", "dotted", "double"][pattern(i)];
  return line;
}

function table(head, rows, rowClass = () => "") {
  const cells = (tag, row) => row.map((cell, i) => make(tag, {className: tag === "td" && i > 0 ? "value" : ""}, cell));
  return make("div", {className: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, ...cells("th", head))),
      make("tbody", {}, ...rows.map((row, i) => make("tr", {className: rowClass(i)}, ...cells("td", row))))));
}

/** Returns the images that a run evaluates while it trains: those that --validation has held out, or the test images. */
const splitOf = (run) => run.start.validation_images > 0 ? "validation" : "test";

/** The runs of each --repeat that are in the report. */
const groups = [...new Set(runs.map((run) => run.group))].filter((name) => name !== "")
    .map((name) => ({name, runs: runs.filter((run) => run.group === name)})).filter((group) => group.runs.length > 1);

/** Returns the mean of values and its standard error; null if a value is missing. */
function meanWithError(values) {
  if (values.some((value) => value === null || value === undefined)) return null;
  return {mean: d3.mean(values), error: d3.deviation(values) / Math.sqrt(values.length)};
}

/** Returns a row of the table of results with the means of a group, for the columns `names`. */
function meanRow(group, names) {
  const columns = {"test accuracy": ["accuracy", percent], "best accuracy": ["best", percent], "six views": ["views", percent],
    "training accuracy": ["training", percent], "test loss": ["loss", formatLoss], "training time": ["seconds", formatDuration], "images/s": ["rate", formatRate],
    "steps": ["steps", formatRate]};
  const complete = group.runs.filter((run) => run.state === "complete").map(resultOf);
  const cells = names.map((name) => {
    const [key, format] = columns[name];
    const found = complete.length > 1 ? meanWithError(complete.map((result) => result[key])) : null;
    if (found === null) return "–";
    return found.error === 0 ? format(found.mean) : `${format(found.mean)} ± ${format(found.error)}`;
  });
  return [`mean of ${complete.length} runs in ${group.name}`, "", ...cells];
}

/** Returns what a run has reached so far: its result, or its latest evaluation and step. */
function resultOf(run) {
  const last = run.evaluations[run.evaluations.length - 1], best = run.evaluations.findLast((each) => each.best);
  const result = run.result || {};
  const rate = run.curves.images_per_second;
  return {
    accuracy: result.test_accuracy ?? (splitOf(run) === "test" ? last?.accuracy : null) ?? null,
    loss: result.test_loss ?? (splitOf(run) === "test" ? last?.loss : null) ?? null,
    best: result.best_accuracy ?? best?.accuracy ?? null,
    bestStep: result.best_step ?? best?.step ?? null,
    views: result.tta_accuracy ?? null,
    training: run.epochs[run.epochs.length - 1]?.accuracy ?? null,
    steps: result.steps ?? run.curves.step[run.curves.step.length - 1] ?? 0,
    seconds: result.train_seconds ?? run.curves.elapsed[run.curves.elapsed.length - 1] ?? null,
    rate: result.images_per_second ?? rate[rate.length - 1] ?? null,
  };
}

function resultsSection() {
  const format = {
    "test accuracy": (r) => r.accuracy === null ? "–" : percent(r.accuracy),
    "best accuracy": (r) => r.best === null ? "–" : `${percent(r.best)} at step ${r.bestStep}`,
    "six views": (r) => r.views === null ? "–" : percent(r.views),
    "training accuracy": (r) => r.training === null ? "–" : percent(r.training),
    "test loss": (r) => r.loss === null ? "–" : formatLoss(r.loss),
    "training time": (r) => r.seconds === null ? "–" : formatDuration(r.seconds),
    "images/s": (r) => r.rate === null ? "–" : formatRate(r.rate),
    "steps": (r) => `${d3.format(",")(r.steps)}`,
  };
  const results = runs.map(resultOf);
  if (results.every((result) => result.views === null)) delete format["six views"];
  if (results.every((result) => result.training === null)) delete format["training accuracy"];
  if (runs.length === 1) {
    const tile = (name, text) => {
      const [value, ...place] = text.split(" at ");
      return make("div", {}, make("span", {className: "soft"}, name), make("b", {}, value),
          make("span", {className: "soft"}, place.length > 0 ? `at ${place}` : ""));
    };
    const tiles = [tile("state", runs[0].state),
      ...Object.entries(format).map(([name, text]) => tile(name, text(results[0])))];
    const columns = Math.ceil(tiles.length / 2);  // two rows, where the window is wide enough
    return make("div", {className: "tiles", style: `--columns: ${columns}`}, ...tiles);
  }
  const difference = ({accuracy}, i) => i === 0 || accuracy === null || results[0].accuracy === null ? ""
      : ` (${d3.format("+.2f")(100 * (accuracy - results[0].accuracy))})`;
  format["test accuracy"] = (r, i) => r.accuracy === null ? "–" : percent(r.accuracy) + difference(r, i);
  return make("div", {className: "card results"}, table(["run", "state", ...Object.keys(format)], runs.map((run, i) => [
    make("span", {}, swatch(i), run.name), run.state, ...Object.values(format).map((text) => text(results[i], i))])
      .concat(groups.map((group) => meanRow(group, Object.keys(format))))),
  make("p", {className: "soft"}, "In brackets: percentage points over the first run.",
      groups.length > 0 ? " After ±: the standard error of the mean, of complete runs." : ""));
}

/** Returns the points of a curve of the step events. */
function pointsOf(run, name) {
  const {step, elapsed} = run.curves;
  return run.curves[name].map((y, i) => ({step: step[i], epoch: step[i] / run.start.steps_per_epoch, elapsed: elapsed[i], y}));
}
/** Returns the points of a field of the run's epochs or evaluations. */
function eventPoints(run, events, name) {
  return run[events].map((each) => ({step: each.step, epoch: each.step / run.start.steps_per_epoch,
    elapsed: each.elapsed, y: each[name], best: each.best}));
}

/** Returns the means of an evaluated field over the runs of a group, at the steps that all of them have evaluated. */
function meanPoints(group, name) {
  const all = group.runs.map((run) => eventPoints(run, "evaluations", name));
  return all[0].flatMap((first) => {
    const same = all.map((points) => points.find((point) => point.step === first.step));
    if (same.some((point) => point === undefined)) return [];
    const {mean, error} = meanWithError(same.map((point) => point.y));
    return [{...first, elapsed: d3.mean(same, (point) => point.elapsed), y: mean, error, best: false}];
  });
}

function curvesSection() {
  const group = d3.max(runs, (run) => run.curves.group);
  const means = group > 1 ? ` Each point is the mean of up to ${group} logged steps.` : "";
  const all = (points, marks = false) => runs.map((run, index) => ({name: run.name, index, points: points(run), marks}));
  const split = runs.every((run) => splitOf(run) === splitOf(runs[0])) ? splitOf(runs[0]) : "evaluation";
  const evaluated = split[0].toUpperCase() + split.slice(1);
  const charts = [
    {title: "Training loss", series: all((run) => pointsOf(run, "loss")), smoothed: true, logarithmic: true,
      caption: `Mean over the batch, before the step.${means}`},
    {title: `${evaluated} accuracy`, series: all((run) => eventPoints(run, "evaluations", "accuracy"), true), format: d3.format(".1%"),
      caption: "The larger marks were the best so far."},
    {title: `${evaluated} accuracy, mean`, format: d3.format(".1%"),
      series: groups.map((group, index) => ({name: group.name, index, points: meanPoints(group, "accuracy"), marks: true})),
      caption: "Over the runs of each --repeat. The bars are one standard error of the mean."},
    {title: "Training accuracy", series: all((run) => eventPoints(run, "epochs", "accuracy"), true), format: d3.format(".1%"),
      caption: "Of the samples of each epoch: augmented, each before the step that it was in."},
    {title: `${evaluated} loss`, series: all((run) => eventPoints(run, "evaluations", "loss"), true), logarithmic: true},
    {title: "Learning rate", series: all((run) => pointsOf(run, "lr")), zero: true},
    {title: "Images per second", series: all((run) => pointsOf(run, "images_per_second")), smoothed: true, zero: true,
      format: d3.format("~s"), caption: "Of all ranks."},
    {title: "Time of a step (ms)", series: all((run) => pointsOf(run, "step_ms")), smoothed: true, zero: true},
  ];
  const waits = [["data_ms", "Wait for data in a step (ms)"], ["comm_ms", "Wait for gradients in a step (ms)"]];
  for (const [name, title] of waits)
    if (runs.some((run) => run.curves[name].some((y) => y > 0)))
      charts.push({title, series: all((run) => pointsOf(run, name)), smoothed: true, zero: true, caption: "On rank 0."});
  const hasValues = ({series}) => series.some((each) => each.points.some((point) => point.y !== null));
  return make("div", {}, controls(), make("div", {className: "figures"}, ...charts.filter(hasValues).map(lineChart)));
}

function controls() {
  const slider = make("input", {type: "range", min: 0, max: 0.98, step: 0.02, value: settings.smoothing,
    oninput: () => { settings.smoothing = Number(slider.value); changed(); }});
  const axis = make("select", {onchange: () => { settings.x = axis.value; settings.zoom = null; changed(); }},
      ...[["step", "step"], ["epoch", "epoch"], ["elapsed", "time"]].map(([value, text]) =>
        make("option", {value, selected: settings.x === value}, text)));
  const log = make("input", {type: "checkbox", checked: settings.log, onchange: () => { settings.log = log.checked; changed(); }});
  return make("div", {className: "card controls"}, make("label", {}, "Smoothing", slider), make("label", {}, "Horizontal axis", axis),
      make("label", {}, log, "Logarithmic losses"),
      make("button", {type: "button", onclick: () => { settings.zoom = null; changed(); }}, "Whole range"),
      make("span", {className: "soft"}, "Drag in a chart to enlarge a range; double-click for the whole."));
}

function perRun(section) {
  return make("div", {}, ...runs.flatMap((run, i) => {
    const content = section(run, i);
    if (content === null) return [];
    return runs.length === 1 ? [content] : [make("h3", {}, swatch(i), run.name), content];
  }));
}

function dataSection() {
  return perRun(({start, samples_image}) => {
    if (!start.classes && !samples_image) return null;
    const counts = (start.classes ?? []).map((name, label) => ({name, images: start.class_images[label]}));
    const all = d3.sum(counts, (row) => row.images);
    return make("div", {className: "figures"}, counts.length === 0 ? null : make("div", {className: "card"},
        make("h3", {}, "Training images"), sortableTable([["class", (row) => row.name, (text) => text],
          ["images", (row) => row.images, String], ["share", (row) => row.images / all, shortPercent]], counts)),
    !samples_image ? null : make("div", {className: "card"}, make("h3", {}, "Samples"),
        make("img", {src: samples_image, alt: "Training images with their classes", style: "max-width: 100%"}),
        make("p", {className: "soft"}, "The first training images, as augmented.")));
  });
}

function predictionsSection() {
  const card = (title, content) => make("div", {className: "card"}, make("h3", {}, title), content);
  return perRun(({evaluation}) => {
    if (!evaluation) return null;
    const hasMatrix = evaluation.confusion.length > 0;
    return make("div", {}, hasMatrix && evaluation.classes.length <= MAX_MATRIX ? confusionMatrix(evaluation) : null,
        make("div", {className: "figures"}, card("Classes", classTable(evaluation)),
            hasMatrix ? card("Classes that are confused most", confusedPairs(evaluation)) : null));
  });
}

function mistakesSection() {
  return perRun((run) => !run.evaluation?.mistakes_image || run.evaluation.mistakes.length === 0 ? null
    : make("div", {className: "card"}, make("p", {className: "soft"},
        `The ${splitOf(run)} images that were misclassified with the highest probability at step ${run.evaluation.step}.`), mistakes(run.evaluation)));
}

function systemOf({start, ...run}) {
  const counts = new Map();
  for (const device of start.devices || []) counts.set(device, (counts.get(device) || 0) + 1);
  return {
    "directory": run.directory, "began": run.begun, "resumed": run.resumed === 0 ? "no" : `${run.resumed} times`,
    "version of Convoy": start.version, "hosts": start.hosts,
    "devices": [...counts].map(([device, count]) => count > 1 ? `${count} x ${device}` : device), "ranks": start.world_size,
    "communication": start.ranks, "parameters": d3.format(",")(start.model_parameters ?? 0),
    "training images": d3.format(",")(start.train_images ?? 0), "test images": d3.format(",")(start.test_images ?? 0),
    "steps per epoch": start.steps_per_epoch,
  };
}

/** Returns a table with one row per key; for several runs, rows that differ are marked and may be shown alone. */
function comparison(objects) {
  const keys = [...new Set(objects.flatMap(Object.keys))];
  const rows = keys.map((key) => [key, ...objects.map((object) => formatValue(object[key]))]);
  const differs = (row) => row.slice(2).some((text) => text !== row[1]);
  const place = make("div");
  const fill = (all) => {
    const chosen = all ? rows : rows.filter(differs);
    const head = runs.length === 1 ? ["", ""] : ["", ...runs.map((run, i) => make("span", {}, swatch(i), run.name))];
    place.replaceChildren(chosen.length > 0 ? table(head, chosen, (i) => runs.length > 1 && differs(chosen[i]) ? "differs" : "")
      : make("p", {className: "soft"}, "All are the same."));
  };
  fill(runs.length === 1);
  const box = make("input", {type: "checkbox", onchange: () => fill(box.checked)});
  return make("div", {className: "card"}, runs.length > 1 ? make("label", {}, box, " show all rows, not only differences") : null, place);
}

function messagesSection() {
  return perRun((run) => run.messages.length === 0 ? null : make("div", {className: "card"}, table(["", "step", "message"],
      run.messages.map(({kind, step, text}) => [make("span", {className: kind === "error" ? "bad" : ""}, kind), formatValue(step), text]))));
}

/** Returns the contents of a section, or what is wrong with its data: a damaged log leaves the other sections readable. */
function attempt(section) {
  try {
    return section();
  } catch (error) {
    return make("p", {className: "bad"}, `These data cannot be shown: ${error.message}`);
  }
}

/** Shows the sections that have contents, and links to them. */
function show() {
  const title = runs.length === 1 ? runs[0].name : `${runs.length} runs`;
  document.title = `${title} – Convoy report`;
  const {config} = runs[0].start;
  const theme = make("select", {"aria-label": "Colors", onchange: () => { settings.theme = theme.value; applyTheme(); changed(); }},
      ...["auto", "light", "dark"].map((value) => make("option", {value, selected: settings.theme === value}, `colors: ${value}`)));
  const reload = make("input", {type: "checkbox", checked: settings.reload, onchange: () => { settings.reload = reload.checked; changed(); }});
  const heading = make("header", {}, make("h1", {}, title),
      make("p", {className: "soft"}, runs.length === 1 ? `${config.model} on ${config.dataset}. ` : "", `Convoy ${data.version}, ${data.generated}`),
      data.reload_seconds > 0 ? make("p", {}, make("label", {}, reload, ` reload every ${data.reload_seconds} s while the training runs`)) : null);
  const sections = [
    ["Results", resultsSection],
    ["Curves", curvesSection],
    ["Data", dataSection],
    ["Rate", () => perRun((run) => run.lr_search ? make("div", {className: "figures"}, rateChart(run.lr_search)) : null)],
    ["Predictions", predictionsSection],
    ["Mistakes", mistakesSection],
    ["Timeline", () => perRun((run) => run.timeline ? timeline(run.timeline) : null)],
    ["Configuration", () => comparison(runs.map((run) => run.start.config))],
    ["System", () => comparison(runs.map(systemOf))],
    ["Warnings", messagesSection],
  ].map(([name, section]) => [name, attempt(section)]).filter(([, content]) => content.hasChildNodes());
  const links = sections.map(([name]) => make("a", {href: `#${name.toLowerCase()}`}, name));
  document.getElementById("contents").append(make("strong", {}, "Convoy report"), make("div", {className: "links"}, ...links), theme);
  const license = make("details", {}, make("summary", {}, "License of D3, which draws the figures"),
      make("pre", {}, document.getElementById("d3-license").textContent));
  document.getElementById("report").replaceChildren(heading, ...sections.map(([name, content]) =>
    make("section", {id: name.toLowerCase()}, make("h2", {}, name), content)), license);
}

applyTheme();
show();
redraw();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;  // a phone's address bar changes the height alone
  width = innerWidth;
  redraw();
});
if (data.reload_seconds > 0) setInterval(() => { if (settings.reload) location.reload(); }, 1000 * data.reload_seconds);
