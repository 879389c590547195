// Conversations, kept in the browser only.   {id, title, messages: [{role, content, reasoning, calls, figures, failure}]}

const store = {
  chats: [],
  current: null,

  load() {
    try { store.chats = JSON.parse(localStorage.getItem("chats")) ?? []; } catch { store.chats = []; }
    if (!Array.isArray(store.chats)) store.chats = [];
    store.current = store.chats.find((chat) => chat.id === localStorage.getItem("current")) ?? store.chats[0] ?? store.create();
  },

  create() {
    const empty = store.chats.find((chat) => chat.messages.length === 0);
    store.current = empty ?? {id: crypto.randomUUID?.() ?? String(Date.now()), title: "New conversation", messages: []};
    if (!empty) store.chats.unshift(store.current);
    store.save();
    return store.current;
  },

  remove(chat) {
    store.chats = store.chats.filter((other) => other !== chat);
    if (store.current === chat) store.current = store.chats[0] ?? store.create();
    store.save();
  },

  /// The browser gives a few megabytes: the oldest conversations go first.
  save() {
    const kept = [...store.chats];
    while (true) {
      try {
        localStorage.setItem("chats", JSON.stringify(kept));
        localStorage.setItem("current", store.current?.id ?? "");
        return;
      } catch {
        if (kept.length <= 1) return;
        kept.pop();
      }
    }
  },
};
