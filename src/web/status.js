// What the server does, from /metrics once a second while the page is seen.

const status = {
  rates: [],
  uses: [],
  last: null,

  async update() {
    if (document.hidden) { status.last = null; return; }
    let now;
    try { now = await api.metrics(); } catch { now = null; }
    if (!now) {
      status.last = null;
      for (const id of ["running", "waiting", "rate", "kv"]) byId(id).textContent = "–";
      return;
    }
    const time = performance.now();
    byId("running").textContent = now["vllm:num_requests_running"] ?? 0;
    byId("waiting").textContent = now["vllm:num_requests_waiting"] ?? 0;
    const made = now["vllm:generation_tokens_total"] ?? 0;
    const use = now["vllm:kv_cache_usage_perc"] ?? 0;
    if (status.last) {
      const rate = Math.max(0, (made - status.last.made) * 1000 / (time - status.last.time));
      byId("rate").textContent = rate < 10 ? rate.toFixed(1) : Math.round(rate);
      status.draw("rate-graph", status.rates, rate, 1);
    }
    byId("kv").textContent = (use * 100).toFixed(use < 0.1 ? 1 : 0) + " %";
    status.draw("kv-graph", status.uses, use, 0.01);
    status.last = {made, time};
  },

  draw(id, values, value, least) {
    values.push(value);
    if (values.length > 120) values.shift();
    const top = Math.max(least, ...values);
    const points = values.map((v, i) => (120 - values.length + i) + "," + (19 - 18 * v / top).toFixed(1)).join(" ");
    const graph = byId(id);
    graph.setAttribute("viewBox", "0 0 120 20");
    graph.setAttribute("preserveAspectRatio", "none");
    if (!graph.firstChild) graph.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
    graph.firstChild.setAttribute("points", points);
  },

  start() {
    const loop = async () => {
      await status.update();
      setTimeout(loop, 1000);
    };
    loop();
  },
};
