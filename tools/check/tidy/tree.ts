/** The repository as the tidy rules see it: names and texts. Rules never touch the disk, so a test can plant any fault. */
export interface Tree {
  /** Paths from the root with forward slashes, sorted. */
  readonly files: readonly string[]
  read(path: string): string
}

export interface Finding {
  readonly file: string
  readonly line?: number
  readonly message: string
}

export interface Rule {
  readonly name: string
  find(tree: Tree): Finding[]
}

/** A tree out of thin air, for tests. */
export function treeOf(texts: Readonly<Record<string, string>>): Tree {
  return {
    files: Object.keys(texts).toSorted(),
    read(path) {
      const text = texts[path]
      if (text === undefined) throw new Error(`no ${path} in this tree`)
      return text
    },
  }
}

export function lineAt(text: string, offset: number): number {
  let line = 1
  for (let at = text.indexOf('\n'); at !== -1 && at < offset; at = text.indexOf('\n', at + 1)) line += 1
  return line
}

/** Every file with the folders that it is in. */
export function placesOf(tree: Tree): ReadonlySet<string> {
  return new Set(
    tree.files.flatMap((file) => {
      const parts = file.split('/')
      return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
    }),
  )
}

/** Tests and conformance suites are not published: the rules of the library's own code do not apply to them. */
export const testFile = /\.(test|test-d|conformance)\.tsx?$/

/** The library's own modules. */
export function isLibrarySource(path: string): boolean {
  return path.startsWith('src/') && /\.tsx?$/.test(path) && !testFile.test(path)
}

/** `src/locks/key.ts` is in the module `locks`; `src/errors.ts` is in none. */
export function moduleOf(path: string): string | undefined {
  return /^src\/([^/]+)\//.exec(path)?.[1]
}
