import { defineConfig } from 'vitest/config'

// A project of yours needs no configuration for it. Here the package is its source, named in the tsconfig of the repository.
export default defineConfig({
  resolve: { tsconfigPaths: true },
  test: { include: ['*.spec.ts'], globalSetup: './globalSetup.ts' },
})
