/** Next.js calls it when a server starts, before the first request. */
export async function register() {
  if (process.env.NEXT_RUNTIME !== 'nodejs' || process.env.NEXT_PHASE === 'phase-production-build') return
  const { startDispatcher } = await import('./dispatcher.js')
  await startDispatcher()
}
