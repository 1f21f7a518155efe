// Confusion matrix, classes and mistakes of the best evaluation, and the timeline of a step.

const percent = d3.format(".2%"), shortPercent = d3.format(".1%");
const MAX_MATRIX = 50;  // classes
const MAX_PAIRS = 12;

/** Returns the confusion matrix as a figure: rows are labels, columns are predictions, colors are shares of a row. */
function confusionMatrix(evaluation) {
  const {classes, confusion, images} = evaluation;
  const n = classes.length;
  const caption = `Rows are labels, columns are predictions, at step ${evaluation.step}. The color is the share of the ` +
      "images of the row.";
  return figure("Confusion matrix", caption, (svg, width) => {
    const letters = Math.min(14, d3.max(classes, (name) => name.length));
    const left = Math.min(7 * letters + 12, 0.3 * width), above = Math.min(6.2 * letters + 12, 110);
    const right = Math.min(40, 0.5 * above);  // the names of the last columns reach beyond these
    const size = Math.min(64, (width - left - right) / n), rowHeight = Math.min(size, Math.max(30, 300 / n));
    const font = Math.min(13, 0.36 * size);
    const label = (x, y, name, anchor, turn) => {
      const text = svg.append("text").attr("text-anchor", anchor).style("font-size", `${Math.max(7, Math.min(12, rowHeight))}px`)
          .attr("transform", `translate(${x},${y}) rotate(${turn})`).text(shorten(name, letters));
      text.append("title").text(name);
    };
    for (let row = 0; row < n; ++row) {
      label(left - 6, above + (row + 0.5) * rowHeight + 4, classes[row], "end", 0);
      label(left + (row + 0.5) * size + 3, above - 6, classes[row], "start", -55);
      for (let column = 0; column < n; ++column) {
        const count = confusion[row][column], share = images[row] > 0 ? count / images[row] : 0;
        const cell = svg.append("g").attr("transform", `translate(${left + column * size},${above + row * rowHeight})`);
        cell.append("rect").attr("width", Math.max(1, size - 1)).attr("height", Math.max(1, rowHeight - 1))
            .style("fill", count > 0 ? `rgba(var(--heat), ${0.12 + 0.88 * share})` : "var(--page)");
        cell.append("title").text(`${count} of ${images[row]} images of ${classes[row]} were taken for ${classes[column]}`);
        if (count > 0 && font >= 7)
          cell.append("text").attr("x", size / 2 - 0.5).attr("y", rowHeight / 2 + font * 0.36).attr("text-anchor", "middle")
              .style("font-size", `${font}px`).style("fill", share > 0.45 ? "var(--card)" : "var(--ink)").text(count);
      }
    }
    return above + n * rowHeight + 6;
  }, {wide: true});
}

/** Returns the precision, recall and F1 score of each class. */
function classScores({classes, confusion, images, correct}) {
  return classes.map((name, c) => {
    const predicted = confusion.length > 0 ? d3.sum(confusion, (row) => row[c]) : null;
    const precision = predicted ? correct[c] / predicted : null;
    const recall = images[c] > 0 ? correct[c] / images[c] : null;
    const f1 = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : null;
    return {name, images: images[c], precision, recall, f1};
  });
}

/** Returns a table whose columns sort: [title, row => value, value => text]. The rows are in order at first. */
function sortableTable(columns, rows) {
  const body = make("tbody");
  let order = null, descending = false;
  const fill = () => {
    const value = order === null ? () => 0 : columns[order][1];
    const sorted = [...rows].sort((a, b) => (descending ? d3.descending : d3.ascending)(value(a), value(b)));
    body.replaceChildren(...sorted.map((row) => make("tr", {}, ...columns.map(([, value, text], i) =>
        make("td", {className: typeof value(row) === "string" ? "" : "number"}, value(row) === null ? "–" : text(value(row)))))));
  };
  const head = columns.map(([title], i) => make("th", {className: rows.length > 0 && typeof columns[i][1](rows[0]) === "string" ? "" : "number"}, make("button", {
    type: "button", title: `Sort by ${title}`, onclick: () => {
      descending = order === i ? !descending : false;
      order = i;
      fill();
    }}, title)));
  fill();
  return make("div", {className: "scroll tall"}, make("table", {}, make("thead", {}, make("tr", {}, ...head)), body));
}

function classTable(evaluation) {
  return sortableTable([["class", (row) => row.name, (text) => text], ["images", (row) => row.images, String],
    ["precision", (row) => row.precision, shortPercent], ["recall", (row) => row.recall, shortPercent],
    ["F1", (row) => row.f1, shortPercent]],
  classScores(evaluation));
}

/** Returns the pairs of classes that are confused most. */
function confusedPairs({classes, confusion, images}) {
  const pairs = confusion.flatMap((row, label) => row.map((count, prediction) => ({label, prediction, count})))
      .filter((pair) => pair.label !== pair.prediction && pair.count > 0);
  pairs.sort((a, b) => d3.descending(a.count, b.count));
  return sortableTable([["label", (pair) => classes[pair.label], (text) => text],
    ["prediction", (pair) => classes[pair.prediction], (text) => text], ["images", (pair) => pair.count, String],
    ["share", (pair) => pair.count / images[pair.label], shortPercent]], pairs.slice(0, MAX_PAIRS));
}

/** Returns the images that were misclassified with the highest probability. */
function mistakes(evaluation) {
  const sprite = new Image();
  const rows = Math.ceil(evaluation.mistakes.length / evaluation.mistakes_per_row);
  const gap = 2;  // pixels behind each image
  const cards = evaluation.mistakes.map((mistake, i) => {
    const name = mistake.file ?? `image ${mistake.image}`;
    const canvas = make("canvas", {"role": "img", "aria-label": `${name} of the evaluation`});
    sprite.addEventListener("load", () => {
      const width = sprite.naturalWidth / evaluation.mistakes_per_row, height = sprite.naturalHeight / rows;
      canvas.width = width - gap;
      canvas.height = height - gap;
      canvas.getContext("2d").drawImage(sprite, -width * (i % evaluation.mistakes_per_row),
          -height * Math.floor(i / evaluation.mistakes_per_row));
    });
    return make("div", {}, canvas, make("span", {className: "bad"}, evaluation.classes[mistake.prediction]),
        ` ${shortPercent(mistake.probability)}`, make("br"), "is ", make("span", {className: "good"}, evaluation.classes[mistake.label]),
        make("br"), make("span", {className: "soft"}, name));
  });
  sprite.src = evaluation.mistakes_image;
  return make("div", {className: "mistakes"}, ...cards);
}

const PARTS = ["data wait", "forward", "backward", "wait for gradients", "optimizer"];
const MAX_RANKS = 32;

/** Returns the timeline of one step: for each rank its computation, and below it the reduction of gradients. */
function timeline(data) {
  const ranks = data.ranks.slice(0, MAX_RANKS);
  const caption = `Step ${data.step} of the trace, ${d3.format(".4~g")(data.ms)} ms. ` +
      (data.ranks.length > MAX_RANKS ? `The first ${MAX_RANKS} of ${data.ranks.length} ranks. ` : "") +
      "The whole trace opens in ui.perfetto.dev or chrome://tracing.";
  return figure("Timeline of a step", caption, (svg, width) => {
    const hasGradients = ranks.some((rank) => rank.spans.some((span) => span.row === 1));
    const names = hasGradients ? [...PARTS, "reduction of gradients"] : PARTS;
    const index = (span) => span.row === 1 ? PARTS.length : PARTS.indexOf(span.name);
    const used = names.filter((name, i) => ranks.some((rank) => rank.spans.some((span) => index(span) === i)));
    let x0 = 8, y0 = 12;
    for (const name of used) {
      const length = 26 + 7 * name.length;
      if (x0 > 8 && x0 + length > width) { x0 = 8; y0 += 18; }
      svg.append("rect").attr("x", x0).attr("y", y0 - 6).attr("width", 12).attr("height", 12).style("fill", color(names.indexOf(name)));
      svg.append("text").attr("x", x0 + 17).attr("y", y0 + 4).text(name);
      x0 += length;
    }
    const left = 58, row = 20, top = y0 + 18, rows = hasGradients ? 2 : 1, rankHeight = rows * row + 10;
    const bottom = top + ranks.length * rankHeight;
    const x = d3.scaleLinear().domain([0, data.ms]).range([left, width - 14]);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${bottom})`)
        .call(d3.axisBottom(x).ticks(Math.max(3, width / 110)).tickSize(-(bottom - top)).tickFormat((ms) => `${d3.format(".4~g")(ms)} ms`));
    ranks.forEach((rank, i) => {
      const y = top + i * rankHeight;
      svg.append("text").attr("x", 4).attr("y", y + 14).text(rank.name);
      for (const span of rank.spans) {
        const place = x(span.begin), length = Math.max(0.8, x(span.begin + span.length) - place);
        svg.append("rect").attr("x", place).attr("y", y + span.row * row + 1).attr("width", length).attr("height", row - 2)
            .style("fill", color(index(span))).append("title").text(`${span.name}: ${d3.format(".4~g")(span.length)} ms`);
      }
    });
    return bottom + 24;
  }, {wide: true});
}
