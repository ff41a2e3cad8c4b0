import { randomBytes } from 'node:crypto'
import { open, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** Where a page of WAL that begins a segment has the identifier: behind its short header. */
const IDENTIFIER_IN_WAL = 24
const LONG_HEADER = 0x0002
const SEGMENT_NAME = /^[0-9A-F]{24}$/

/**
 * Gives a data directory that was copied after an orderly stop a system identifier of its own, as pg_resetwal does, which the npm packages
 * of PostgreSQL do not have. The identifier is the first value of pg_control, whose last value is a checksum of what is before it, and it
 * is repeated in the first page of each WAL segment.
 */
export async function renewSystemIdentifier(dataDir: string): Promise<void> {
  const identifier = (BigInt(Math.floor(Date.now() / 1000)) << 32n) | BigInt(randomBytes(4).readUInt32LE())
  const controlFile = join(dataDir, 'global', 'pg_control')
  const control = await readFile(controlFile)
  const end = placeOfChecksum(control)
  control.writeBigUInt64LE(identifier, 0)
  control.writeUInt32LE(crc32c(control.subarray(0, end)), end)
  await writeFile(controlFile, control)
  for (const name of await readdir(join(dataDir, 'pg_wal'))) {
    if (!SEGMENT_NAME.test(name)) continue
    const segment = await open(join(dataDir, 'pg_wal', name), 'r+')
    try {
      const { buffer: header } = await segment.read(Buffer.alloc(IDENTIFIER_IN_WAL), 0, IDENTIFIER_IN_WAL, 0)
      if ((header.readUInt16LE(2) & LONG_HEADER) === 0) throw new Error(`${name} does not begin as a WAL segment does`)
      const value = Buffer.alloc(8)
      value.writeBigUInt64LE(identifier)
      await segment.write(value, 0, value.length, IDENTIFIER_IN_WAL)
    } finally {
      await segment.close()
    }
  }
}

/** It depends on the version of PostgreSQL. */
function placeOfChecksum(control: Buffer): number {
  for (let end = 128; end <= 508; end += 4) {
    if (crc32c(control.subarray(0, end)) === control.readUInt32LE(end)) return end
  }
  throw new Error('pg_control has no checksum where one is known')
}

/** The checksum that PostgreSQL uses: CRC-32 with Castagnoli's polynomial. */
function crc32c(bytes: Buffer): number {
  let crc = 0xffffffff
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ ((crc & 1) === 1 ? 0x82f63b78 : 0)
  }
  return (crc ^ 0xffffffff) >>> 0
}
