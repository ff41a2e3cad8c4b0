import { FIXED, SANS } from './timelineStyle.ts'

/** The whole style of the report; the pictures have their own. */
export const pageStyle = `
:root{color-scheme:light dark;--bg:#f0f2f5;--card:#fff;--ink:#1b1f24;--muted:#5c6670;--line:#dfe4e9;--red:#cf222e;--redbg:#fff0ef;--green:#1a7f37;--amber:#8a5a00}
@media (prefers-color-scheme:dark){:root{--bg:#010409;--card:#0d1117;--ink:#e6edf3;--muted:#949ea9;--line:#2a313b;--red:#ff6b61;--redbg:#2b1416;--green:#4ac26b;--amber:#d9a62e}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 ${SANS}}
main{max-width:1248px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 8px}
h2{font-size:20px;margin:40px 0 12px}
h3{font-size:16px;margin:0 0 4px}
p{margin:4px 0}
code{font:13px/1.5 ${FIXED}}
.muted{color:var(--muted)}
.verdict{font-size:18px;margin:0 0 20px}
.good{color:var(--green);font-weight:600}
.bad{color:var(--red);font-weight:600}
.caught{color:var(--amber);font-weight:600}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 20px;margin:0 0 16px;overflow-x:auto}
.alarm{border:2px solid var(--red);background:var(--redbg)}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:0}
.facts dt{color:var(--muted)}
.facts dd{margin:0;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:8px 12px 8px 0;border-bottom:1px solid var(--line);vertical-align:top}
tbody:last-child tr:last-child td,tbody:last-child td[rowspan]{border-bottom:0}
a{color:inherit}
.card>.muted{margin-top:12px}
th{font-weight:600;color:var(--muted);font-size:13px}
.number{text-align:right;white-space:nowrap}
td small{display:block;color:var(--muted);font-size:13px}
figure{margin:0 0 28px}
figcaption{margin:0 0 10px}
figure svg{display:block;width:100%;height:auto;min-width:760px;border:1px solid var(--line);border-radius:10px}
.picture{overflow-x:auto}
details{margin:8px 0}
summary{cursor:pointer}
li{margin:4px 0}
`
