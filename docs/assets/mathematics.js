// Typesets what the Markdown extension arithmatex set aside: a span in lines, a division displayed.
document.querySelectorAll(".arithmatex").forEach((element) => {
  katex.render(element.textContent.trim(), element, {
    displayMode: element.tagName === "DIV",
    throwOnError: false,
    strict: "ignore", // Greek letters are written as they are
  });
});
