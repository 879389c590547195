// Talking to the server: the OpenAI API with fetch, server-sent events by lines.

const api = {
  headers() {
    const key = sessionStorage.getItem("key");
    return {"Content-Type": "application/json", ...(key ? {Authorization: "Bearer " + key} : {})};
  },

  /// The answer, or an Error with the server's own sentence.
  async ask(path, options = {}) {
    let response;
    try {
      response = await fetch(path, {...options, headers: api.headers()});
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw new Error("The server does not answer.");
    }
    if (response.ok) return response;
    let message = response.status + " " + response.statusText;
    try { message = (await response.json()).error.message; } catch { /* not JSON: the status says it */ }
    const error = new Error(message);
    error.status = response.status;
    throw error;
  },

  async models() {
    return (await (await api.ask("v1/models")).json()).data;
  },

  /// Streams a chat completion: onDelta(delta) for each piece. Returns {finish, usage}.
  async chat(body, signal, onDelta) {
    const response = await api.ask("v1/chat/completions", {
      method: "POST", signal, body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}}),
    });
    const result = {finish: null, usage: null};
    for await (const data of api.events(response.body)) {
      if (data === "[DONE]") return result;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) result.usage = chunk.usage;
      for (const choice of chunk.choices ?? []) {
        onDelta(choice.delta ?? {});
        if (choice.finish_reason) result.finish = choice.finish_reason;
      }
    }
    throw new Error("The connection ended before the answer did.");
  },

  async *events(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
      while (true) {
        const {value, done} = await reader.read();
        if (done) return;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith("data:")) yield line.slice(5).trim();
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  },

  /// Sums of the named samples of /metrics.
  async metrics() {
    const sums = {};
    for (const line of (await (await api.ask("metrics")).text()).split("\n")) {
      const found = /^([\w:]+)(?:\{[^}]*\})? ([-+.\deE]+)$/.exec(line);
      if (found) sums[found[1]] = (sums[found[1]] ?? 0) + Number(found[2]);
    }
    return sums;
  },
};
