// Checks a page of convoy-report in a browser. The test appends this to the page, and reads the element `checks`.
addEventListener("load", () => {
  const figures = [...document.querySelectorAll("figure")];
  const marks = (figure) => figure.querySelectorAll("path[d]:not(.domain), rect:not(.overlay)").length;
  const result = {problems, injected: "injected" in window, themes: {}};
  for (const theme of ["light", "dark"]) {
    settings.theme = theme;
    applyTheme();
    redraw();
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
  result.saved = figures.map((figure) => svgText(figure.querySelector("svg")));
  result.links = [...document.querySelectorAll("nav a")].map((link) => document.querySelector(link.hash) !== null);
  result.mistakes = document.querySelectorAll(".mistakes canvas").length;
  const bytes = new TextEncoder().encode(JSON.stringify(result));
  document.body.append(make("pre", {id: "checks"}, btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))));
});
