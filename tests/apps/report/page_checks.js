// Checks a page of convoy-report in a browser. The test appends this to the page, and reads the element `checks`.
addEventListener("load", async () => {
  const result = {problems, injected: "injected" in window, themes: {}};
  // The clock of the browser would run to its end while another thread encodes an image. Each tick takes time.
  const ticks = setInterval(() => {}, 4);
  await checkPage(result).catch((error) => problems.push(error.stack));
  clearInterval(ticks);
  const bytes = new TextEncoder().encode(JSON.stringify(result));
  document.body.append(make("pre", {id: "checks"}, btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))));
});

/** Adds to the result what the page has, and what its controls and buttons do. */
async function checkPage(result) {
  const figures = [...document.querySelectorAll("figure")];
  const marks = (figure) => figure.querySelectorAll("path[d]:not(.domain), rect:not(.overlay)").length;
  const operate = (control, value, event) => {
    control.value = value;
    control.dispatchEvent(new Event(event));
  };
  for (const theme of ["light", "dark"]) {
    operate(document.querySelector("nav select"), theme, "change");
    const root = document.documentElement;
    const outside = [...document.querySelectorAll("main *")].filter((element) =>
      !element.closest(".scroll, svg, details") && element.getBoundingClientRect().right > root.clientWidth + 1);
    result.themes[theme] = {
      width: root.clientWidth,
      overflow: root.scrollWidth - root.clientWidth,
      outside: outside.map((element) => element.outerHTML.slice(0, 80)),
      empty: figures.filter((figure) => marks(figure) === 0).map((figure) => figure.textContent),
      ink: getComputedStyle(document.body).color,
    };
  }
  result.figures = figures.map((figure) => figure.querySelector("h3").textContent);
  result.results = document.getElementById("results").textContent;
  const tiles = [...document.querySelectorAll(".tiles > div")].map((tile) => tile.getBoundingClientRect().top);
  result.tilesOfRows = [...new Set(tiles)].map((top) => tiles.filter((other) => other === top).length);
  result.links = [...document.querySelectorAll("nav a")].map((link) => document.querySelector(link.hash) !== null);
  result.mistakes = document.querySelectorAll(".mistakes canvas").length;
  result.smoothing = smoothingOf(figures[0], operate);
  result.axes = axesOf(figures[0], operate);
  result.saved = [];
  for (const figure of figures) result.saved.push(await savedFiles(figure));
}

/** Moves the slider, and returns for each value the paths of the first run: how far the curve moves up and down, in pixels. */
function smoothingOf(figure, operate) {
  const slider = document.querySelector(".controls input[type=range]"), before = slider.value;
  const travelOf = (path) => {
    const heights = path.getAttribute("d").slice(1).split("L").map((point) => Number(point.split(",")[1]));
    return d3.sum(heights.slice(1), (y, i) => Math.abs(y - heights[i]));
  };
  const found = [0, 0.5, 0.9].map((value) => {
    operate(slider, value, "input");
    return [...figure.querySelectorAll("g[clip-path] > path")].filter((path) => path.style.stroke === color(0)).map(travelOf);
  });
  operate(slider, before, "input");
  return found;
}

/** Returns the labels of the horizontal axis for each value of its control. */
function axesOf(figure, operate) {
  const axis = document.querySelector(".controls select");
  const labels = [...axis.options].reverse().map(({value}) => {
    operate(axis, value, "change");
    return figure.querySelector("svg > .label").textContent;
  });
  return labels;
}

/** Presses the buttons of a figure, and returns the files that the browser is given: the SVG as text, and the PNG. */
async function savedFiles(figure) {
  const blobs = new Map();
  const {createObjectURL} = URL, {click} = HTMLAnchorElement.prototype;
  URL.createObjectURL = (blob) => {
    const url = createObjectURL(blob);
    blobs.set(url, blob);
    return url;
  };
  const press = (text) => new Promise((resolve) => {
    HTMLAnchorElement.prototype.click = function() { resolve({name: this.download, url: this.href, blob: blobs.get(this.href)}); };
    [...figure.querySelectorAll("button")].find((button) => button.textContent === text).click();
  });
  const svg = await press("SVG"), png = await press("PNG");
  Object.assign(URL, {createObjectURL});
  HTMLAnchorElement.prototype.click = click;
  const image = new Image();
  await new Promise((resolve, reject) => Object.assign(image, {onload: resolve, onerror: reject, src: png.url}));
  const canvas = make("canvas", {width: image.naturalWidth, height: image.naturalHeight}), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const drawn = figure.querySelector("svg").getBoundingClientRect(), background = pixels[4 * canvas.width + 4];
  return {
    svg: await svg.blob.text(), names: [svg.name, png.name],
    signature: [...new Uint8Array(await png.blob.arrayBuffer()).slice(0, 8)],
    size: [canvas.width, canvas.height], drawnSize: [drawn.width, drawn.height],
    inked: pixels.filter((pixel) => pixel !== background).length / pixels.length,
  };
}
