// Figures: a frame with buttons that save the drawing, and line charts of curves of several runs.
"use strict";

/** Returns a new element. Strings among the children become text, never markup. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const SYMBOLS = [d3.symbolCircle, d3.symbolSquare, d3.symbolTriangle, d3.symbolDiamond];
const COLORS = 8;
const color = (i) => `var(--run${i % COLORS})`;
const pattern = (i) => (i + Math.floor(i / COLORS)) % 4;  // another one when the colors begin again
const dash = (i) => DASHES[pattern(i)];
const symbol = (i, size) => d3.symbol().type(SYMBOLS[pattern(i)]).size(size)();

const drawings = [];  // functions that draw a figure again
function redraw() {
  for (const draw of drawings) draw();
}

/** Returns the drawing as the text of an SVG file: with its present styles, so that it needs no style sheet. */
function svgText(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"])
      element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("style");
  });
  for (const element of copy.querySelectorAll(".brush, .cursor")) element.remove();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const background = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const sizes = {width: svg.getAttribute("width"), height: svg.getAttribute("height")};
  for (const [name, value] of Object.entries({...sizes, fill: getComputedStyle(svg.closest("figure")).backgroundColor}))
    background.setAttribute(name, value);
  copy.prepend(background);
  return new XMLSerializer().serializeToString(copy);
}

function download(blob, name) {
  const link = make("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function save(svg, name, asPng) {
  const blob = new Blob([svgText(svg)], {type: "image/svg+xml"});
  if (!asPng) return download(blob, `${name}.svg`);
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", {width: 2 * svg.clientWidth, height: 2 * svg.clientHeight});
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((png) => download(png, `${name}.png`));
    URL.revokeObjectURL(image.src);
  };
  image.src = URL.createObjectURL(blob);
}

/**
 * Returns a figure. `draw(svg, width)` fills an empty SVG selection and returns its height; it is called again when the
 * width or a setting changes.
 */
function figure(title, caption, draw, {wide = false} = {}) {
  const drawing = make("div", {className: "drawing"});
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const button = (text, asPng) => make("button", {
    type: "button", title: `Save the figure as ${text}`, onclick: () => save(drawing.querySelector("svg"), name, asPng),
  }, text);
  const element = make("figure", {className: wide ? "wide" : ""},
      make("header", {}, make("h3", {}, title), button("SVG", false), button("PNG", true)), drawing,
      caption ? make("figcaption", {}, caption) : null);
  const run = () => {
    const width = Math.floor(drawing.clientWidth);
    if (width === 0) return;
    const svg = d3.create("svg").attr("width", width).attr("role", "img").attr("aria-label", title);
    const height = draw(svg, width, drawing);
    svg.attr("height", height).attr("viewBox", `0 0 ${width} ${height}`);
    drawing.replaceChildren(svg.node());
  };
  drawings.push(run);
  return element;
}

/** Returns a text of at most `length` characters, with the end of the whole, in which names often differ. */
function shorten(text, length) {
  const end = Math.min(4, Math.floor(length / 3));
  return text.length > length ? `${text.slice(0, length - end - 1)}…${text.slice(text.length - end)}` : text;
}

/** Draws the names of the series in rows, and returns the height of these. */
function drawLegend(svg, width, names) {
  let x = 8, y = 12;
  names.forEach((name, i) => {
    const shown = shorten(name, 40), length = 34 + 6.4 * shown.length;
    if (x > 8 && x + length > width) { x = 8; y += 18; }
    svg.append("line").attr("x1", x).attr("x2", x + 22).attr("y1", y).attr("y2", y)
        .style("stroke", color(i)).style("stroke-width", 2.5).style("stroke-dasharray", dash(i));
    svg.append("text").attr("x", x + 28).attr("y", y + 4).text(shown);
    x += length + 8;
  });
  return y + 12;
}

/** Returns the exponential moving average of the values, corrected for its beginning. */
function smooth(points, weight) {
  let sum = 0, total = 0;
  return points.map((point) => {
    if (point.y === null) return point;
    sum = weight * sum + (1 - weight) * point.y;
    total = weight * total + 1 - weight;
    return {...point, y: sum / total};
  });
}

const X_LABELS = {step: "step", epoch: "epoch", elapsed: "time since the start"};
function formatX(value) {
  if (settings.x !== "elapsed") return d3.format(settings.x === "step" ? ",.0f" : ".3~f")(value);
  if (value >= 7200) return `${d3.format(".3~f")(value / 3600)} h`;
  return value >= 120 ? `${d3.format(".3~f")(value / 60)} min` : `${d3.format(".3~f")(value)} s`;
}

/** Returns the lowest and the highest value of a point, which differ if it has an error. */
const range = (point) => [point.y - (point.error ?? 0), point.y + (point.error ?? 0)];

/**
 * Returns a figure with one curve per series: {name, index, points: [{step, epoch, elapsed, y, error}], marks}. A point
 * with an error has a bar from y - error to y + error. `smoothed`:
 * the control for smoothing applies. `logarithmic`: the control for the axis applies.
 */
function lineChart({title, caption, series, format, smoothed = false, logarithmic = false, zero = false}) {
  return figure(title, caption, (svg, width, drawing) => {
    const curves = series.map((each) => {
      const points = each.points.map((point) => ({...point, x: point[settings.x]})).filter((point) => point.x !== null);
      const isSmoothed = smoothed && settings.smoothing > 0 && points.length > 2;
      return {...each, raw: points, points: isSmoothed ? smooth(points, settings.smoothing) : points, isSmoothed};
    });
    const top = (runs.length > 1 ? drawLegend(svg, width, series.map((each) => each.name)) : 0) + 10;
    const margin = {left: 58, right: 24, bottom: 42};
    const height = top + Math.max(190, Math.min(290, 0.45 * width)) + margin.bottom;
    const all = curves.flatMap((each) => each.raw).filter((point) => point.y !== null);
    const full = [Math.min(0, d3.min(all, (p) => p.x)), d3.max(all, (p) => p.x)];
    const isZoomed = settings.zoom !== null && settings.zoom[0] < full[1];
    const x = d3.scaleLinear().domain(isZoomed ? settings.zoom : full).range([margin.left, width - margin.right]);
    const [from, to] = x.domain();
    const inside = all.filter((point) => point.x >= from && point.x <= to);
    let [low, high] = d3.extent((inside.length > 0 ? inside : all).flatMap(range));
    const isLog = logarithmic && settings.log && low > 0;
    if (zero && !isLog) low = Math.min(0, low);
    if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
    const y = (isLog ? d3.scaleLog() : d3.scaleLinear()).domain([low, high]).nice().range([height - margin.bottom, top]);

    const yAxis = d3.axisLeft(y).ticks(5, isLog ? "~g" : undefined).tickSize(-(width - margin.left - margin.right));
    if (format && !isLog) yAxis.tickFormat(format);
    svg.append("g").attr("class", "grid").attr("transform", `translate(${margin.left},0)`).call(yAxis);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - margin.bottom})`)
        .call(d3.axisBottom(x).ticks(Math.max(3, Math.min(8, width / 90))).tickFormat(formatX));
    svg.append("text").attr("class", "label").attr("x", (margin.left + width - margin.right) / 2).attr("y", height - 6)
        .attr("text-anchor", "middle").text(X_LABELS[settings.x]);

    const clip = `clip${++lineChart.count}`;
    svg.append("clipPath").attr("id", clip).append("rect").attr("x", margin.left - 5).attr("y", top - 5)
        .attr("width", width - margin.left - margin.right + 10).attr("height", height - margin.bottom - top + 10);
    const plot = svg.append("g").attr("clip-path", `url(#${clip})`);
    const line = d3.line().defined((point) => point.y !== null && (!isLog || point.y > 0))
        .x((point) => x(point.x)).y((point) => y(point.y));
    for (const each of curves) {
      const stroke = (points, opacity, strokeWidth) => plot.append("path").attr("d", line(points)).style("fill", "none")
          .style("stroke", color(each.index)).style("stroke-width", strokeWidth).style("opacity", opacity);
      if (each.isSmoothed) stroke(each.raw, 0.25, 1);
      stroke(each.points, 1, 1.8).style("stroke-dasharray", dash(each.index));
      if (!each.marks) continue;
      for (const point of each.points) {
        if (point.error) {
          const [from, to] = range(point).map(y), cap = 4;
          plot.append("path").attr("class", "error").attr("transform", `translate(${x(point.x)},0)`).style("fill", "none")
              .style("stroke", color(each.index)).style("stroke-width", 1.5)
              .attr("d", `M0,${from}V${to}M${-cap},${from}H${cap}M${-cap},${to}H${cap}`);
        }
        plot.append("path").attr("d", symbol(each.index, point.best ? 70 : 36))
            .attr("transform", `translate(${x(point.x)},${y(point.y)})`).style("fill", color(each.index));
      }
    }
    addBrush(svg, x, top, height - margin.bottom, width - margin.right);
    addCursor(svg, drawing, curves, x, top, height - margin.bottom, format);
    return height;
  });
}
lineChart.count = 0;

/** Returns a figure of the losses of --lr find by rate: {rates, losses, chosen, reason}. */
function rateChart({rates, losses, chosen, reason}) {
  return figure("Search of the learning rate", `Loss of each step while the rate rose. Chosen: ${chosen}, ${reason}.`, (svg, width) => {
    const points = rates.map((rate, i) => ({rate, loss: losses[i]})).filter((point) => point.loss !== null);
    const margin = {left: 58, right: 24, top: 10, bottom: 42}, height = Math.max(240, Math.min(340, 0.45 * width));
    const x = d3.scaleLog().domain(d3.extent([...rates, chosen])).range([margin.left, width - margin.right]);
    const y = d3.scaleLinear().domain(d3.extent(points, (point) => point.loss)).nice().range([height - margin.bottom, margin.top]);
    svg.append("g").attr("class", "grid").attr("transform", `translate(${margin.left},0)`)
        .call(d3.axisLeft(y).ticks(5).tickSize(-(width - margin.left - margin.right)));
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - margin.bottom})`)
        .call(d3.axisBottom(x).ticks(Math.max(3, Math.min(8, width / 90)), "~g"));
    svg.append("text").attr("class", "label").attr("x", (margin.left + width - margin.right) / 2).attr("y", height - 6)
        .attr("text-anchor", "middle").text("learning rate");
    svg.append("path").attr("d", d3.line().x((point) => x(point.rate)).y((point) => y(point.loss))(points)).style("fill", "none")
        .style("stroke", color(0)).style("stroke-width", 1.8);
    svg.append("path").attr("d", `M${x(chosen)},${margin.top}V${height - margin.bottom}`).style("stroke", color(1))
        .style("stroke-dasharray", "4 3");
    return height;
  });
}

/** Lets a mouse select a range of the x axis, in all charts. A finger scrolls. */
function addBrush(svg, x, top, bottom, right) {
  const brush = d3.brushX().extent([[x.range()[0], top], [right, bottom]]).touchable(false).on("end", (event) => {
    const {selection} = event ?? d3.event;  // D3 passes events since version 6
    if (!selection) return;
    settings.zoom = selection.map(x.invert);
    changed();
  });
  svg.append("g").attr("class", "brush").call(brush);
  svg.on("dblclick", () => {
    settings.zoom = null;
    changed();
  });
}

/** Shows the values at the pointer. */
function addCursor(svg, drawing, curves, x, top, bottom, format) {
  const cursor = svg.append("line").attr("class", "cursor").attr("y1", top).attr("y2", bottom)
      .style("stroke", "var(--soft)").style("display", "none");
  const tip = make("div", {className: "tip", hidden: true});
  const bisect = d3.bisector((point) => point.x).left;
  svg.on("pointermove", (event) => {
    const place = (event ?? d3.event).clientX - svg.node().getBoundingClientRect().left;
    const value = x.invert(place);
    const lines = [];
    for (const each of curves) {
      if (each.points.length === 0) continue;
      const i = Math.min(bisect(each.points, value), each.points.length - 1);
      const near = i > 0 && value - each.points[i - 1].x < each.points[i].x - value ? each.points[i - 1] : each.points[i];
      if (near.y === null) continue;
      const name = runs.length > 1 ? `${each.name}: ` : "", text = format || d3.format(".4~g");
      const error = near.error ? ` ± ${d3.format(".2p")(near.error)}` : "";
      lines.push(`${name}${text(near.y)}${error} at ${X_LABELS[settings.x].split(" ")[0]} ${formatX(near.x)}`);
    }
    if (lines.length === 0) return;
    cursor.attr("x1", place).attr("x2", place).style("display", null);
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    if (!tip.isConnected) drawing.append(tip);
    const width = drawing.clientWidth;
    tip.style.left = place < width / 2 ? `${place + 12}px` : "auto";
    tip.style.right = place < width / 2 ? "auto" : `${width - place + 12}px`;
    tip.style.top = `${top + 4}px`;
  });
  svg.on("pointerleave", () => {
    cursor.style("display", "none");
    tip.hidden = true;
  });
}
