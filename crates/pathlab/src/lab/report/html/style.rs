//! The style of the page, dark and light.

/// Widths are those of a phone first; figures stand beside each other where there is room.
pub(super) const STYLE: &str = "\
:root{--back:#fff;--text:#1b222b;--note:#55606c;--grid:#e4e7eb;--axis:#7d8793;--line:#d3d8de;--mark:#e8f2fb;--warn:#fff4dc;--link:#14628f}\
@media (prefers-color-scheme:dark){:root{--back:#13171d;--text:#dfe4ea;--note:#9aa5b1;--grid:#2a313a;--axis:#7b8794;\
--line:#343d47;--mark:#1d3346;--warn:#3a2f14;--link:#8fc8ee}}\
@media print{:root{--back:#fff;--text:#000;--note:#444;--grid:#ddd;--axis:#777;--line:#bbb;--mark:#e8f2fb;--warn:#fff4dc;--link:#000}\
nav{display:none}section{break-before:page}figure,tr,h2{break-inside:avoid}.figures{grid-template-columns:1fr 1fr!important}\
.scroll{overflow:visible!important}*{print-color-adjust:exact}}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:1180px;padding:.8rem;font:15px/1.45 system-ui,sans-serif;background:var(--back);color:var(--text);overflow-wrap:anywhere}\
h1{font-size:1.5rem;margin:.3rem 0}h2{font-size:1.2rem;margin:2rem 0 .3rem;border-top:1px solid var(--line);padding-top:1rem}\
h2 small{font-weight:400;color:var(--note)}h3{font-size:1rem;margin:1.2rem 0 .3rem}p{margin:.3rem 0;max-width:75ch}\
a{color:var(--link)}nav ul{display:flex;flex-wrap:wrap;gap:.2rem .9rem;list-style:none;padding:0;margin:.6rem 0}\
.warn{background:var(--warn);padding:.5rem .8rem;border-radius:4px}.warn ul{margin:.2rem 0;padding-left:1.2rem}\
.scroll{overflow-x:auto;margin:.6rem 0}\
table{border-collapse:collapse;font-size:.87rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}\
th,td{padding:.22rem .5rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;vertical-align:top}\
th:first-child,td:first-child,.text td,.text th{text-align:left}.text td{white-space:normal;overflow-wrap:anywhere}\
thead th{color:var(--note);font-weight:600}td small{color:var(--note)}td.best{background:var(--mark);font-weight:600}\
.key{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.35em}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:.8rem 1.2rem;align-items:start}\
figure{margin:0;min-width:0}figcaption{font-size:.85rem;color:var(--note);margin-bottom:.2rem}figcaption b{color:var(--text)}\
svg{display:block;width:100%;height:auto;max-width:560px}\
svg text{font:12px system-ui,sans-serif;fill:var(--note)}svg .name{fill:var(--text);font-weight:600}\
.grid{stroke:var(--grid)}.axis{stroke:var(--axis)}.line{fill:none;stroke-width:1.5;stroke-linejoin:round}\
.limit{fill:none;stroke:var(--note);stroke-dasharray:2 3}.run{opacity:.45}\
ul.keys{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem .8rem;padding:0;margin:.2rem 0;font-size:.82rem}";
