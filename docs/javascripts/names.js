// Names for parts of the theme that have none, for readers who hear the page.
document$.subscribe(() => {
  document.querySelectorAll(".md-search").forEach((one) => one.setAttribute("aria-label", "Search"));
  document.querySelectorAll(".md-code__nav").forEach((one, number) => {
    one.setAttribute("aria-label", `Code block ${number + 1}`);
  });
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((one) => one.setAttribute("tabindex", "0"));
});
