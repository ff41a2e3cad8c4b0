import { transformSync } from 'esbuild'

/** Has jest read TypeScript. */
export default {
  process: (code, sourcefile) => transformSync(code, { loader: 'ts', format: 'esm', target: 'node20', sourcefile }),
}
