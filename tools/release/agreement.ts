import { brokenRules, type DescribedFiles } from '../schema/signatures.ts'

/** What a release consists of, as it stands in the repository. */
export interface ReleaseFiles extends DescribedFiles {
  readonly manifest: {
    readonly version: string
    readonly repository?: { readonly url?: string }
    readonly publishConfig?: { readonly tag?: string }
    readonly [field: string]: unknown
  }
  readonly lockfile: { readonly version: string; readonly packages: Readonly<Record<string, { version?: string }>> }
  readonly changelog: string
  /** `sql/signatures` */
  readonly signatures: string
  /** Left out: it is not known yet. */
  readonly tag?: string
}

/** https, a host, an owner and a name: what npm compares the provenance statement with. */
const REPOSITORY = /^git\+https:\/\/[\w.-]+\/[\w.-]+\/[\w.-]+\.git$/
/** Without one of these the page in the registry says less than it could. */
const FIELDS = ['description', 'license', 'keywords', 'homepage', 'bugs', 'repository', 'engines'] as const

/** What is missing or contradicts something else. Nothing: it can be published. */
export function disagreements(release: ReleaseFiles): string[] {
  const { manifest, lockfile, changelog, signatures, tag } = release
  const { version } = manifest
  const found: string[] = []
  const locked = new Set([lockfile.version, lockfile.packages['']?.version])
  if (locked.size !== 1 || !locked.has(version)) {
    found.push(
      `package-lock.json is of version ${[...locked].join(' and ')}, package.json of ${version}. Run: npm install.`,
    )
  }
  if (tag !== undefined && tag !== `v${version}`)
    found.push(`The tag is ${tag}, and package.json has version ${version}.`)
  const published = version.includes('-') ? 'next' : 'latest'
  const named = manifest.publishConfig?.tag
  if ((named ?? 'latest') !== published)
    found.push(`publishConfig.tag is ${named}, and version ${version} is published as ${published}.`)
  const heading = new RegExp(String.raw`^## \[${version.replaceAll('.', String.raw`\.`)}\] - \d{4}-\d{2}-\d{2}$`, 'm')
  if (!heading.test(changelog)) found.push(`CHANGELOG.md has no heading "## [${version}] - YYYY-MM-DD".`)
  const signed = /^-- release: (.*)$/m.exec(signatures)?.[1]
  if (signed !== version) {
    found.push(`sql/signatures is of release ${signed}. Run: npm run schema -- --release ${version}.`)
  }
  found.push(...brokenRules(signatures, release))
  for (const field of FIELDS) if (manifest[field] === undefined) found.push(`package.json has no field "${field}".`)
  const url = manifest.repository?.url
  if (manifest.repository !== undefined && !REPOSITORY.test(url ?? '')) {
    found.push(`repository.url is ${url}. Use git+https://HOST/OWNER/NAME.git: npm publish --provenance compares it.`)
  }
  return found
}
