// In the schema's editor: show what fits the type, and nothing else. Without scripts every field is there.
for (const column of document.querySelectorAll("[data-column]")) {
  const type = column.querySelector("select");
  const fit = () => {
    for (const input of column.querySelectorAll("[data-for]")) {
      input.closest(".field").hidden = !input.dataset.for.split(" ").includes(type.value);
    }
  };
  type.addEventListener("change", fit);
  fit();
}
