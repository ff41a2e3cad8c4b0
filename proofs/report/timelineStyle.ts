export type Scheme = 'auto' | 'light' | 'dark'

const LIGHT = `--bg:#ffffff;--ink:#1b1f24;--muted:#646d77;--lane:#f5f7f9;--grid:#dfe4e9;--pale:#a3adb8;--red:#cf222e;
--on:#ffffff;--fault:#9a6700;--p0:#0969da;--p1:#0b7d63;--p2:#8250df;--p3:#a83e94`
const DARK = `--bg:#0d1117;--ink:#e6edf3;--muted:#949ea9;--lane:#151b23;--grid:#2a313b;--pale:#6d7885;--red:#ff6b61;
--on:#0d1117;--fault:#d9a62e;--p0:#58a6ff;--p1:#3fc29f;--p2:#bc8cff;--p3:#e58fd2`

/** Operations of a violation have a color each; from the fifth on they begin again. */
const COLOURS = 4

/** The class that gives an operation its color. */
export function colour(part: number | undefined): string {
  return part === undefined ? 'pale' : `c${part % COLOURS}`
}

export const SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Liberation Sans',sans-serif"
export const FIXED = "ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono','Liberation Mono',Consolas,monospace"

/** The picture has its own background: it stands on pages of which it knows nothing. */
export function timelineStyle(scheme: Scheme): string {
  const auto = `.race{${LIGHT}}@media (prefers-color-scheme:dark){.race{${DARK}}}`
  const parts = Array.from({ length: COLOURS }, (_, part) => `.race .c${part}{color:var(--p${part})}`).join('')
  return `${scheme === 'auto' ? auto : `.race{${scheme === 'dark' ? DARK : LIGHT}}`}
.race text{font-family:${SANS};fill:var(--ink)}.race .fixed{font-family:${FIXED}}
.race .halo{paint-order:stroke;stroke:var(--lane);stroke-width:3px;stroke-linejoin:round}
.race .muted{fill:var(--muted)}.race .breach{fill:var(--red);font-weight:700}.race .strong{font-weight:600}
.race .own{fill:currentColor}.race .fault{fill:var(--fault)}.race .pill{fill:var(--on);font-weight:600}
.race .pale{color:var(--pale)}${parts}`.replaceAll('\n', '')
}
