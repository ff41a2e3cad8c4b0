import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  CompilerState,
  Extractor,
  ExtractorConfig,
  ExtractorLogLevel,
  type ExtractorMessage,
  ExtractorMessageCategory,
} from '@microsoft/api-extractor'

/** What one entry point exports, as text that can be reviewed. */
export interface ApiReport {
  /** The file's name below `api-reports/`. */
  readonly name: string
  readonly text: string
}

/**
 * Describes every entry point of a built package: what it exports, and the types that these exports mention. A mentioned type that the
 * report of `.` has is described there alone.
 */
export function apiReports(root: string, entries: Readonly<Record<string, string>>): ApiReport[] {
  const folder = mkdtempSync(join(tmpdir(), 'lockstep-api-'))
  try {
    const configs = Object.entries(entries)
      .filter(([name]) => name !== './package.json')
      .map(([name, target]) => ({ name: reportName(name), config: configOf(root, folder, reportName(name), target) }))
    const [first] = configs
    if (first === undefined) return []
    // One program for all of them: reading the declarations is most of the work.
    const compilerState = CompilerState.create(first.config, {
      additionalEntryPoints: configs.map(({ config }) => config.mainEntryPointFilePath),
    })
    const reports = configs.map(({ name, config }) => {
      Extractor.invoke(config, { localBuild: true, compilerState, messageCallback: refuseFaults })
      return { name, text: readFileSync(join(folder, name), 'utf8') }
    })
    const main = reports.find(({ name }) => name === reportName('.'))
    const described = declaredIn(main?.text ?? '')
    return reports.map((report) =>
      report === main ? report : { ...report, text: withoutMentioned(report.text, described) },
    )
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function reportName(entry: string): string {
  return `${entry.replace(/^\.\/?/, '') || 'pg-lockstep'}.api.md`
}

function configOf(root: string, folder: string, name: string, target: string): ExtractorConfig {
  return ExtractorConfig.prepare({
    configObject: {
      projectFolder: root,
      mainEntryPointFilePath: join(root, target.replace(/\.js$/, '.d.ts')),
      newlineKind: 'lf',
      compiler: {
        overrideTsconfig: {
          compilerOptions: {
            target: 'es2022',
            lib: ['es2023', 'esnext.disposable'],
            module: 'nodenext',
            moduleResolution: 'nodenext',
            types: ['node'],
            strict: true,
            exactOptionalPropertyTypes: true,
            skipLibCheck: true,
          },
          files: ['dist/index.d.ts'],
        },
      },
      apiReport: {
        enabled: true,
        reportFileName: name,
        reportFolder: folder,
        reportTempFolder: join(folder, 'temporary'),
        includeForgottenExports: true,
      },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      tsdocMetadata: { enabled: false },
      messages: {
        compilerMessageReporting: { default: { logLevel: ExtractorLogLevel.Error } },
        // Everything that is exported is public, and a type that is only mentioned shows by its missing `export`.
        extractorMessageReporting: { default: { logLevel: ExtractorLogLevel.None } },
        tsdocMessageReporting: { default: { logLevel: ExtractorLogLevel.None } },
      },
    },
    configObjectFullPath: undefined,
    packageJsonFullPath: join(root, 'package.json'),
  })
}

/** The messages of a run are not shown; a declaration that its compiler cannot read would leave a hole in the report. */
function refuseFaults(message: ExtractorMessage): void {
  message.handled = true
  if (message.category === ExtractorMessageCategory.Compiler)
    throw new Error(message.formatMessageWithLocation(undefined))
}

const DECLARATION =
  /^(export )?(?:declare )?(?:abstract )?(?:class|const|enum|function|interface|type) (\w+?)(?:_\d+)?\b/m

/** The names that a report describes. */
export function declaredIn(report: string): ReadonlySet<string> {
  return new Set(blocksOf(report).flatMap((block) => DECLARATION.exec(block)?.[2] ?? []))
}

/** The report without the declarations that it only mentions and that another one has. */
export function withoutMentioned(report: string, elsewhere: ReadonlySet<string>): string {
  return blocksOf(report)
    .filter((block) => {
      const [, exported, name = ''] = DECLARATION.exec(block) ?? []
      return exported !== undefined || !elsewhere.has(name)
    })
    .join('\n\n')
}

/** A declaration and its comment are a block; so are the head and the foot. */
function blocksOf(report: string): string[] {
  return report.split(/\n\n(?=\/\/ |export )/)
}
