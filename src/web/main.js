// Wires the page: keys, settings, models.

const main = {
  async loadModels() {
    const picker = byId("model");
    try {
      const models = await api.models();
      const before = localStorage.getItem("model");
      picker.replaceChildren(...models.map((model) => element("option", {value: model.id}, model.id)));
      if (models.some((model) => model.id === before)) picker.value = before;
      main.say("");
    } catch (problem) {
      main.say(problem.message);
      if (problem.status === 401) chat.askKey();
      else setTimeout(main.loadModels, 2000);
    }
  },

  say(text) {
    byId("notice").hidden = text === "";
    byId("notice").textContent = text;
  },

  /// Settings are kept; the key lives as long as the tab.
  settings() {
    for (const id of ["system", ...SAMPLING]) {
      byId(id).value = localStorage.getItem("setting." + id) ?? "";
      byId(id).oninput = () => localStorage.setItem("setting." + id, byId(id).value);
    }
    byId("key").value = sessionStorage.getItem("key") ?? "";
    byId("key").onchange = () => {
      sessionStorage.setItem("key", byId("key").value);
      main.loadModels();
    };
    byId("model").onchange = () => localStorage.setItem("model", byId("model").value);
    byId("settings").onsubmit = (event) => event.preventDefault();
    byId("toggle-settings").onclick = () => {
      byId("settings").hidden = !byId("settings").hidden;
      byId("toggle-settings").setAttribute("aria-expanded", String(!byId("settings").hidden));
    };
  },

  theme() {
    const root = document.documentElement;
    const saved = localStorage.getItem("theme");
    if (saved) root.dataset.theme = saved;
    byId("theme").onclick = () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      localStorage.setItem("theme", root.dataset.theme);
    };
  },

  submit() {
    const input = byId("input");
    if (chat.answering) return chat.stop();
    if (input.value.trim() === "") return;
    const text = input.value;
    input.value = "";
    main.fit();
    chat.send(text);
  },

  fit() {
    const input = byId("input");
    input.style.height = "auto";
    input.style.height = Math.min(input.scrollHeight + 2, innerHeight * 0.4) + "px";
  },

  keys(event) {
    if (event.key === "Escape" && chat.answering) chat.stop();
    if (event.ctrlKey && event.altKey && event.key.toLowerCase() === "n") { event.preventDefault(); chat.fresh(); }
  },

  composerKeys(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (!chat.answering) main.submit();
    }
    if (event.key === "ArrowUp" && byId("input").value === "") {
      const views = document.querySelectorAll(".message.user");
      const last = store.current.messages.findLastIndex((message) => message.role === "user");
      if (last >= 0) { event.preventDefault(); chat.edit(views[views.length - 1], store.current.messages[last], last); }
    }
  },

  start() {
    main.theme();
    main.settings();
    store.load();
    chat.show();
    byId("composer").onsubmit = (event) => { event.preventDefault(); main.submit(); };
    byId("input").onkeydown = main.composerKeys;
    byId("input").oninput = main.fit;
    byId("new-chat").onclick = chat.fresh;
    byId("toggle-sidebar").onclick = () => {
      document.body.classList.toggle(matchMedia("(max-width: 720px)").matches ? "sidebar" : "no-sidebar");
    };
    byId("messages").onclick = () => document.body.classList.remove("sidebar");
    addEventListener("keydown", main.keys);
    main.loadModels();
    status.start();
  },
};

main.start();
