/** Loaded into every process that a proof starts: when the parent is gone, its end of the pipe closes and the process leaves. */
process.stdin.resume()
process.stdin.on('end', () => process.exit(1))
process.stdin.on('error', () => process.exit(1))
// Only the lifeline: a process with nothing else to do may end.
process.stdin.unref()
