// What the theme leaves out for readers who do not see or do not point.
window.addEventListener("load", () => {
  for (const one of document.querySelectorAll("pre, .table-wrapper, .output_subarea, .output_subarea div")) {
    if (one.scrollWidth > one.clientWidth) {
      one.tabIndex = 0;
    }
  }
  for (const one of document.querySelectorAll("p.caption[role=heading]")) {
    one.setAttribute("aria-level", "2");
  }
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
  const title = document.querySelector("h1") ?? document.querySelector("h2");
  if (title?.tagName === "H2") {
    title.setAttribute("role", "heading");
    title.setAttribute("aria-level", "1");
  }
});
