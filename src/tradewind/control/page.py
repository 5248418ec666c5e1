"""A page for people at the admin address: links, and the grid as a table that renews itself."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tradewind control</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ddd; }
</style></head><body>
<h1>Tradewind control</h1>
<p><a href="/v1/grid">grid</a> &middot; <a href="/v1/gateways">gateways</a> &middot; <a href="/v1/events">events</a>
&middot; <a href="/v1/status">status</a> &middot; <a href="/metrics">metrics</a>
&middot; <a href="/openapi.json">OpenAPI</a></p>
<table><thead><tr><th>cell</th><th>site</th><th>state</th><th>heard (s)</th><th>reason</th></tr></thead>
<tbody id="cells"></tbody></table>
<script>
async function renew() {
  const grid = await (await fetch("/v1/grid")).json();
  const rows = grid.cells.map(cell => {
    const row = document.createElement("tr");
    const age = cell.heartbeat_age_s === null ? "never" : cell.heartbeat_age_s.toFixed(1);
    for (const text of [cell.cell_id, cell.site, cell.state, age, cell.reason]) {
      row.appendChild(document.createElement("td")).textContent = text;
    }
    return row;
  });
  document.getElementById("cells").replaceChildren(...rows);
}
renew(); setInterval(renew, 2000);
</script></body></html>
"""
