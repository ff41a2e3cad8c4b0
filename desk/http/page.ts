import type { Context } from 'hono'

/** Whether a browser asks: routes for both give it a page. */
export function wantsPage(c: Context): boolean {
  return c.req.header('accept')?.includes('text/html') === true
}

/** Text as it may stand in HTML. */
export function text(value: string): string {
  return value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}

/** A small page; its style is a file of its own, so that no inline style has to be allowed. */
export function page(title: string, body: string, colors: 'light' | 'light dark' = 'light dark'): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="${colors}">
<title>${text(title)}</title>
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page.css">
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`
}

/** Only for what stands in `main` itself: what is deeper has a style of its own. */
export const PAGE_CSS = `
body { font: 16px/1.5 system-ui, sans-serif; margin: 0;
  background: light-dark(#ffffff, #12161b); color: light-dark(#181d28, #e7eaf0); }
main { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
main > h1 { font-size: 1.75rem; }
main > h2 { font-size: 1.05rem; margin: 1.5rem 0 0.5rem; }
main > :is(p, ul, table) a { color: light-dark(#22577a, #9ccbe8); }
main > pre { font: 13px/1.6 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0;
  padding: 0.75rem 1rem; border-radius: 6px; background: light-dark(#f1f4f7, #1c242b); }
main > pre > code { font: inherit; }
main > table { border-collapse: collapse; }
main > table :is(th, td) { text-align: left; padding: 0.25rem 1.25rem 0.25rem 0;
  border-bottom: 1px solid light-dark(#d5dce2, #3a444d); }
`

export const FAVICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#22577a"/>
<path d="M9 14v-3a7 7 0 0 1 14 0v3M8 14h16v11H8z" fill="none" stroke="#fff" stroke-width="2.5" stroke-linejoin="round"/></svg>`
