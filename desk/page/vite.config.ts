import { defineConfig } from 'vite'

export default defineConfig({
  base: '/show/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    // Browsers that know light-dark(), so that a theme is one line of CSS.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    // The server's policy allows files of its own and nothing inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
})
