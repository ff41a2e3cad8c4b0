/** What this process runs on: `node 20.20.2`, `bun 1.4.4`, `deno 2.9.6`. Bun and Deno report a version of Node as well. */
export function runtimeVersion(): string {
  const { bun, deno, node } = process.versions as Readonly<Record<string, string | undefined>>
  return bun !== undefined ? `bun ${bun}` : deno !== undefined ? `deno ${deno}` : `node ${node}`
}
