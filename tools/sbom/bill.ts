import type { BundledPackage } from './bundled.ts'

/** What we read and change of a CycloneDX document, as `npm sbom` writes it. */
export interface Bill {
  readonly bomFormat: string
  readonly metadata: { readonly component: Readonly<Record<string, unknown>> }
  readonly components: readonly unknown[]
  readonly dependencies: readonly unknown[]
}

/**
 * Completes the bill of `npm sbom`. The package has no dependencies of its own, but its console's page has others' code inside, which npm
 * takes for tools of the developers. npm also calls the package by its folder.
 */
export function withBundled(bill: Bill, name: string, version: string, bundled: readonly BundledPackage[]): Bill {
  const self = `${name}@${version}`
  return {
    ...bill,
    metadata: { ...bill.metadata, component: { ...bill.metadata.component, name } },
    components: bundled.map(componentOf),
    dependencies: [
      { ref: self, dependsOn: bundled.map(refOf) },
      ...bundled.map((each) => ({
        ref: refOf(each),
        dependsOn: bundled.filter(({ name: other }) => other in (each.dependencies ?? {})).map(refOf),
      })),
    ],
  }
}

function refOf({ name, version }: BundledPackage): string {
  return `${name}@${version}`
}

function componentOf(each: BundledPackage): unknown {
  const { name, version, integrity, license } = each
  const [algorithm, digest] = (integrity ?? '').split('-')
  return {
    'bom-ref': refOf(each),
    type: 'library',
    name,
    version,
    scope: 'required',
    purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
    ...(license === undefined ? {} : { licenses: [{ license: { id: license } }] }),
    ...(algorithm === 'sha512' && digest !== undefined
      ? { hashes: [{ alg: 'SHA-512', content: Buffer.from(digest, 'base64').toString('hex') }] }
      : {}),
  }
}
