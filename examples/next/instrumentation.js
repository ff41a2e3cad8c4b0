/**
 * Next.js calls it when a server starts, before the first request. It compiles this file for the Edge Runtime as well, which has no sockets:
 * only inside this `if` does the bundler leave the import out there.
 */
export async function register() {
  if (process.env.NEXT_RUNTIME === 'nodejs') {
    if (process.env.NEXT_PHASE === 'phase-production-build') return
    const { startDispatcher } = await import('./dispatcher.js')
    await startDispatcher()
  }
}
