/** What happened to who was struck; a picture has no room for more. */
const WORDS: Readonly<Record<string, string>> = {
  kill: 'killed',
  pause: 'stopped',
  clock: 'clock set',
  'cut-in-commit': 'COMMIT cut',
  'half-open': 'connection silent',
  slow: 'slow connection',
  terminate: 'backends terminated',
  cancel: 'statements cancelled',
  snapshot: 'old snapshot held',
  restart: 'server crashed',
  'slow-commit': 'slow commits',
  pooler: 'pooler reconnected',
  'statement-timeout': 'statement timeout',
}

/** An unknown one is called by its name. */
export function faultWord(fault: string): string {
  return Object.hasOwn(WORDS, fault) ? (WORDS[fault] ?? fault) : fault
}
