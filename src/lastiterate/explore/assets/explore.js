/* The page's own script: sliders beside the fields, the state in the link, copy buttons.
   The text of a field is what counts; a slider only writes into it. */
(function () {
  "use strict";
  const PAUSE = 150; // milliseconds of quiet before the form is sent
  const TICKS = 200; // positions of a slider
  let timer = null;
  let waiting = null;

  const fieldOf = (name) => document.getElementById("field-" + name);

  function toText(box, position) {
    const low = Number(box.dataset.low), high = Number(box.dataset.high), share = position / TICKS;
    const value = box.dataset.log === "true"
      ? low * Math.pow(high / low, share)
      : low + (high - low) * share;
    if (box.dataset.whole === "true") {
      const rounded = Math.round(Number(value.toPrecision(2)));
      return String(Math.max(1, rounded));
    }
    return String(Number(value.toPrecision(2)));
  }

  function toPosition(box, text) {
    const low = Number(box.dataset.low), high = Number(box.dataset.high), value = Number(text);
    if (text.trim() === "" || !isFinite(value)) return null;
    const share = box.dataset.log === "true"
      ? Math.log(Math.max(value, low) / low) / Math.log(high / low)
      : (value - low) / (high - low);
    return Math.round(TICKS * Math.min(1, Math.max(0, share)));
  }

  /* Tell React that the field has a new text. */
  function write(field, text) {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, text);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function makeSliders() {
    document.querySelectorAll(".slider:empty").forEach((box) => {
      const slider = document.createElement("input");
      slider.type = "range";
      slider.min = 0;
      slider.max = TICKS;
      slider.setAttribute("aria-label", box.dataset.label);
      slider.addEventListener("input", () => {
        const text = toText(box, Number(slider.value));
        slider.setAttribute("aria-valuetext", text);
        write(fieldOf(box.dataset.field), text);
      });
      box.append(slider);
      const field = fieldOf(box.dataset.field);
      field.setAttribute(
        "aria-describedby",
        "words-" + box.dataset.field + " message-" + box.dataset.field
      );
    });
  }

  /* Dash draws radio buttons as a list box of labels; they are a group of radio buttons. */
  function nameControls() {
    document.querySelectorAll(".choices").forEach((group) => {
      group.setAttribute("role", "radiogroup");
      group.setAttribute("aria-label", group.closest("fieldset").querySelector("legend").textContent);
      group.querySelectorAll("label").forEach((label) => {
        label.removeAttribute("role");
        label.removeAttribute("aria-selected");
      });
    });
    nameUpload();
  }

  function nameUpload() {
    const file = document.querySelector("#upload input[type=file]");
    if (file) file.setAttribute("aria-label", "Certificate to check");
    return Boolean(file);
  }

  function watchControls() {
    nameControls();
    const late = new MutationObserver(() => nameUpload() && late.disconnect());  // it loads by itself
    late.observe(document.body, { childList: true, subtree: true });
    new MutationObserver(nameControls).observe(document.getElementById("form"), {
      attributes: true, attributeFilter: ["aria-selected"], subtree: true,
    });
  }

  function moveSliders(state) {
    document.querySelectorAll(".slider").forEach((box) => {
      const slider = box.firstChild, text = state[box.dataset.field];
      const position = toPosition(box, text);
      box.classList.toggle("unset", position === null);
      if (position !== null && document.activeElement !== slider) slider.value = position;
      slider.setAttribute("aria-valuetext", text === "" ? "none" : text);
    });
  }

  function markFields() {
    document.querySelectorAll(".field").forEach((wrap) => {
      const field = wrap.querySelector("input[type=text]");
      if (field) field.setAttribute("aria-invalid", String(wrap.classList.contains("invalid")));
    });
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    explore: {
      /* All fields as one object of texts, once the user pauses; the link follows. */
      gather: function (...values) {
        const names = values.pop();
        const state = {};
        names.forEach((name, i) => {
          state[name] = values[i] === null || values[i] === undefined ? "" : String(values[i]);
        });
        if (document.querySelector(".slider:empty")) {
          makeSliders();
          watchControls();
        }
        moveSliders(state);
        clearTimeout(timer);
        if (waiting) waiting(window.dash_clientside.no_update);
        return new Promise((resolve) => {
          waiting = resolve;
          timer = setTimeout(() => {
            waiting = null;
            const query = "?" + new URLSearchParams(state).toString();
            window.history.replaceState(window.history.state, "", query);
            resolve(state);
          }, PAUSE);
        });
      },
      mark: function () {
        requestAnimationFrame(markFields);
        return window.dash_clientside.no_update;
      },
    },
  });

  document.addEventListener("click", (event) => {
    if (event.target.id === "preset-heller-fetaya") {
      document.getElementById("sgld").scrollIntoView({ behavior: "smooth" });
    }
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const what = button.dataset.copy;
    const text = what === "link" ? window.location.href : document.getElementById(what).textContent;
    const words = button.textContent;
    navigator.clipboard.writeText(text).then(
      () => { button.textContent = "Copied"; },
      () => { button.textContent = "Select the text and copy it"; }
    ).finally(() => setTimeout(() => { button.textContent = words; }, 1500));
  });
})();
