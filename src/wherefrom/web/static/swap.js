// Every page works without this file: forms are sent and links are followed. With it, the part of
// the page that an answer belongs to is fetched and put in place, and the rest stays as it is.
//   form data-swap="#one,#two" is not sent but fetched; with data-live as soon as a field changes
//   a data-swap="#part"        likewise; a field's own data-swap goes before its form's
//   element data-refresh="ms"  is fetched again and again, as long as it says so
//   button data-play="#link"   follows a link again and again
"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  let busy = false;
  let next = null;

  async function fetchPart(address, selector, keepAddress) {
    if (busy) { // one at a time, and of those that wait only the last matters
      next = [address, selector, keepAddress];
      return;
    }
    busy = true;
    try {
      const reply = await fetch(address, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      for (const part of selector.split(",")) put(page, part);
      if (!keepAddress) history.replaceState(null, "", address);
    } catch (problem) {
      say("The page did not answer. Is the server still running?");
    } finally {
      busy = false;
      if (next !== null) {
        const waiting = next;
        next = null;
        fetchPart(...waiting);
      }
    }
  }

  function put(page, selector) {
    const fresh = page.querySelector(selector) || page.querySelector("main");
    const old = document.querySelector(selector) || document.querySelector("main");
    if (!fresh || !old) return;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    const figures = [...old.querySelectorAll("[data-figure]")];
    const drawn = new Map(figures.map((place) => [place.dataset.figure, place.querySelector(".js-plotly-plot")]));
    old.replaceWith(document.adoptNode(fresh));
    if (window.drawFigures) window.drawFigures(fresh, drawn);
    if (focused && document.getElementById(focused)) document.getElementById(focused).focus({ preventScroll: true });
    prepare(fresh);
  }

  function addressOf(form) {
    const fields = new URLSearchParams(new FormData(form));
    return form.getAttribute("action") + "?" + fields.toString();
  }

  function say(sentence) {
    const place = document.getElementById("said");
    if (place) place.textContent = sentence;
  }

  function prepare(root) {
    for (const slider of root.querySelectorAll("input[type=range]")) {
      const shown = root.querySelector(`output[for="${slider.id}"]`);
      if (shown) slider.addEventListener("input", () => { shown.textContent = slider.value; });
    }
    for (const button of root.querySelectorAll("button[data-play]")) {
      button.hidden = false;
      button.setAttribute("aria-pressed", String(playing !== null));
    }
    for (const element of root.querySelectorAll("[data-refresh]")) refresh(element);
    if (root.matches && root.matches("[data-refresh]")) refresh(root);
  }

  function refresh(element) {
    const selector = "#" + element.id;
    setTimeout(() => {
      if (document.hidden) { refresh(element); return; }
      if (document.querySelector(selector) === element) fetchPart(location.href, selector, true);
    }, Number(element.dataset.refresh));
  }

  let playing = null;
  function play(button) {
    if (playing !== null) { clearInterval(playing); playing = null; }
    else playing = setInterval(() => { const link = document.querySelector(button.dataset.play); if (link) link.click(); }, 700);
    for (const each of document.querySelectorAll("button[data-play]")) each.setAttribute("aria-pressed", String(playing !== null));
  }

  // what was asked in this tab, the latest first; it stays in the browser
  function keepHistory() {
    const list = document.getElementById("history");
    if (!list) return;
    let kept = [];
    try { kept = JSON.parse(sessionStorage.getItem("asked") || "[]"); } catch (problem) { kept = []; }
    const asked = document.querySelector("[data-asked]");
    if (asked) {
      const entry = { address: location.href, question: asked.dataset.asked, shown: asked.dataset.shown };
      kept = [entry, ...kept.filter((each) => each.question !== entry.question)].slice(0, 20);
      sessionStorage.setItem("asked", JSON.stringify(kept));
    }
    list.replaceChildren(...kept.map((each) => {
      const item = document.createElement("li");
      const link = item.appendChild(document.createElement("a"));
      const shown = item.appendChild(document.createElement("span"));
      link.href = each.address;
      link.textContent = each.question;
      shown.textContent = each.shown;
      shown.className = "quiet";
      return item;
    }));
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.swap || form.method !== "get") return;
    event.preventDefault();
    fetchPart(addressOf(form), form.dataset.swap, false);
  });
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (form && "live" in form.dataset) {
      fetchPart(addressOf(form), event.target.dataset.swap || form.dataset.swap, false);
    }
  });
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest("textarea[data-submit]");
    if (box && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      box.form.requestSubmit();
    }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      fetchPart(link.getAttribute("href"), link.dataset.swap, false);
    }
    const button = event.target.closest("button[data-play]");
    if (button) play(button);
  });
  document.addEventListener("DOMContentLoaded", () => { prepare(document); keepHistory(); });
})();
