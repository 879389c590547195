// The conversation: messages shown, an answer that streams, and what can be done with each message.

const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens"];

const chat = {
  answering: null,  // {controller, chat} while an answer comes

  show() {
    const place = byId("messages");
    place.replaceChildren();
    const {messages} = store.current;
    if (messages.length === 0) place.append(element("p", {className: "empty"}, "Ask something. Conversations stay in this browser."));
    messages.forEach((message, index) => place.append(chat.view(message, index)));
    place.scrollTop = place.scrollHeight;
    chat.list();
  },

  list() {
    byId("chats").replaceChildren(...store.chats.map((entry) => element("div", {className: entry === store.current ? "current" : ""},
      element("button", {className: "open", title: entry.title, onclick: () => chat.open(entry)}, entry.title),
      element("button", {className: "remove", "aria-label": "Delete conversation", title: "Delete", onclick: () => chat.remove(entry)}, "×"))));
  },

  open(entry) {
    store.current = entry;
    store.save();
    document.body.classList.remove("sidebar");
    chat.show();
  },

  remove(entry) {
    if (chat.answering?.chat === entry) chat.stop();
    store.remove(entry);
    chat.show();
  },

  fresh() {
    store.create();
    document.body.classList.remove("sidebar");
    chat.show();
    byId("input").focus();
  },

  view(message, index) {
    const view = element("article", {className: "message " + message.role});
    chat.fill(view, message, index);
    return view;
  },

  fill(view, message, index) {
    const body = element("div", {className: "body"});
    view.replaceChildren();
    if (message.role === "assistant") {
      view.append(...chat.folded(message));
      showMarkdown(body, message.content);
    } else {
      body.textContent = message.content;
    }
    view.append(body);
    if (message.failure) view.append(element("p", {className: "failure"}, message.failure));
    view.append(chat.tools(view, message, index));
  },

  /// Reasoning and tool calls, closed until they are wanted.
  folded(message) {
    const parts = [];
    if (message.reasoning) parts.push(element("details", {className: "reasoning"}, element("summary", {}, "Reasoning"), element("pre", {}, element("code", {}, message.reasoning))));
    for (const call of message.calls ?? []) {
      parts.push(element("details", {className: "call"}, element("summary", {}, "Tool call: " + call.name), element("pre", {}, element("code", {}, call.arguments))));
    }
    return parts;
  },

  tools(view, message, index) {
    const row = element("div", {className: "tools"}, copyButton(() => message.content));
    if (message.role === "user") row.append(element("button", {type: "button", onclick: () => chat.edit(view, message, index)}, "Edit"));
    else row.append(element("button", {type: "button", onclick: () => chat.regenerate(index)}, "Regenerate"));
    if (message.figures) row.append(element("span", {className: "figures"}, message.figures));
    return row;
  },

  /// The message becomes a text field; sending it drops what came after.
  edit(view, message, index) {
    if (chat.answering) return;
    const field = element("textarea", {rows: 3, value: message.content, "aria-label": "Edit message"});
    const send = () => {
      if (field.value.trim() === "") return;
      store.current.messages.length = index;
      chat.send(field.value);
    };
    field.onkeydown = (event) => {
      if (event.key === "Escape") chat.show();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    };
    view.replaceChildren(field, element("div", {className: "tools"},
      element("button", {type: "button", onclick: send}, "Send"), element("button", {type: "button", onclick: () => chat.show()}, "Cancel")));
    field.focus();
  },

  regenerate(index) {
    if (chat.answering) return;
    store.current.messages.length = index;
    chat.answer();
  },

  send(text) {
    const {messages} = store.current;
    if (messages.length === 0) store.current.title = text.trim().split("\n")[0].slice(0, 60);
    messages.push({role: "user", content: text});
    chat.answer();
  },

  /// What the server is asked: the settings that are filled in, and all messages.
  request() {
    const body = {model: byId("model").value, messages: []};
    for (const name of SAMPLING) {
      const value = byId(name).value.trim();
      if (value !== "" && Number.isFinite(Number(value))) body[name] = Number(value);
    }
    const system = byId("system").value;
    if (system.trim() !== "") body.messages.push({role: "system", content: system});
    for (const {role, content} of store.current.messages) body.messages.push({role, content});
    return body;
  },

  async answer() {
    const entry = store.current;
    const body = chat.request();
    const message = {role: "assistant", content: "", reasoning: "", calls: []};
    entry.messages.push(message);
    store.save();
    chat.show();
    const index = entry.messages.length - 1;
    const view = byId("messages").lastChild;
    view.classList.add("waiting");
    const controller = new AbortController();
    chat.answering = {controller, chat: entry};
    chat.showState();
    const began = performance.now();
    let first = 0;
    let drawn = 0;
    const draw = () => {
      drawn = 0;
      if (store.current === entry && view.isConnected) chat.grow(view, message);
    };
    try {
      const result = await api.chat(body, controller.signal, (delta) => {
        chat.add(message, delta);
        if (!first) first = performance.now();
        if (!drawn) drawn = requestAnimationFrame(draw);
      });
      message.figures = chat.figures(result, first - began, performance.now() - first);
    } catch (problem) {
      message.failure = problem.name === "AbortError" ? "Stopped." : problem.message;
      if (problem.status === 401) chat.askKey();
    }
    cancelAnimationFrame(drawn);
    chat.answering = null;
    if (store.current === entry && view.isConnected) {
      view.classList.remove("waiting");
      chat.fill(view, message, index);
    }
    store.save();
    chat.showState();
  },

  add(message, delta) {
    message.content += delta.content ?? "";
    message.reasoning += delta.reasoning ?? delta.reasoning_content ?? "";
    for (const call of delta.tool_calls ?? []) {
      const known = message.calls[call.index] ??= {name: "", arguments: ""};
      known.name += call.function?.name ?? "";
      known.arguments += call.function?.arguments ?? "";
    }
  },

  /// Draws what is new and follows the end unless the reader has scrolled up.
  grow(view, message) {
    const place = byId("messages");
    const follows = place.scrollHeight - place.scrollTop - place.clientHeight < 80;
    const body = view.querySelector(".body");
    const open = [...view.querySelectorAll("details")].map((part) => part.open);
    for (const part of view.querySelectorAll("details")) part.remove();
    const parts = chat.folded(message);
    parts.forEach((part, i) => { part.open = open[i] ?? false; });
    view.prepend(...parts);
    showMarkdown(body, message.content);
    if (follows) place.scrollTop = place.scrollHeight;
  },

  figures({usage, finish}, waited, took) {
    if (!usage) return "";
    const speed = took > 0 && usage.completion_tokens > 1 ? ((usage.completion_tokens - 1) * 1000 / took).toFixed(1) + " tokens/s, " : "";
    const cached = usage.prompt_tokens_details?.cached_tokens ? ", " + usage.prompt_tokens_details.cached_tokens + " cached" : "";
    return speed + usage.completion_tokens + " tokens, first after " + Math.round(waited) + " ms (" + usage.prompt_tokens + " prompt tokens" + cached + ")" +
      (finish === "length" ? ", cut at the limit" : "");
  },

  stop() { chat.answering?.controller.abort(); },

  askKey() {
    byId("settings").hidden = false;
    byId("toggle-settings").setAttribute("aria-expanded", "true");
    byId("key").focus();
  },

  showState() {
    byId("send").textContent = chat.answering ? "Stop" : "Send";
  },
};
