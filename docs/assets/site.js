// What scrolls sideways can be reached by keyboard, landmarks have names of their own, and a head
// without words is no head.
const mend = () => {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__table, .md-typeset__scrollwrap"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  document.querySelectorAll(".md-code__nav").forEach((nav, place) => {
    nav.ariaLabel = `Code ${place + 1}`;
  });
  document.querySelectorAll(".md-nav--secondary .md-nav").forEach((nav, place) => {
    nav.ariaLabel = `Contents ${place + 1}`;
  });
  for (const head of document.querySelectorAll(".md-typeset th:empty"))
    head.replaceWith(document.createElement("td"));
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", mend);
mend();
