import { lookup as resolve, type LookupAddress, type LookupOptions } from 'node:dns'
import { BlockList, isIP, type LookupFunction } from 'node:net'

/** Thrown instead of connecting to an address that is not on the public internet. */
export class PrivateAddressError extends Error {
  override readonly name = 'PrivateAddressError'
  constructor(host: string, address: string) {
    super(host === address ? `${host} is a private address` : `${host} leads to the private address ${address}`)
  }
}

// Loopback, private, link-local (where clouds keep their credentials), shared, multicast, reserved and documentation.
const NOT_PUBLIC_4 = new BlockList()
for (const range of [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
]) {
  const [network, prefix] = range.split('/') as [string, string]
  NOT_PUBLIC_4.addSubnet(network, Number(prefix))
}

// Of IPv6 only 2000::/3 is in use for the public; in it, some ranges carry an IPv4 address that is easy to overlook.
const PUBLIC_6 = new BlockList()
PUBLIC_6.addSubnet('2000::', 3, 'ipv6')
const NOT_PUBLIC_6 = new BlockList()
NOT_PUBLIC_6.addSubnet('2001::', 23, 'ipv6')
NOT_PUBLIC_6.addSubnet('2001:db8::', 32, 'ipv6')
NOT_PUBLIC_6.addSubnet('2002::', 16, 'ipv6')
NOT_PUBLIC_6.addSubnet('3fff::', 20, 'ipv6')

/** Whether an IP address belongs to the public internet. What is no address does not. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address)
  if (family === 4) return !NOT_PUBLIC_4.check(address)
  if (family === 6) return PUBLIC_6.check(address, 'ipv6') && !NOT_PUBLIC_6.check(address, 'ipv6')
  return false
}

/** The host of a URL as an IP address; undefined where it is a name. */
export function literalAddress(url: URL): string | undefined {
  const host = url.hostname.replace(/^\[|\]$/g, '')
  return isIP(host) === 0 ? undefined : host
}

/**
 * Resolves a name for the very connection that is made: what is checked here is what is connected to, so that a name which answers
 * differently the next time gains nothing. One private address among several is enough to refuse the name.
 */
export const publicLookup: LookupFunction = (hostname, options: LookupOptions, callback) => {
  resolve(hostname, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
    const hidden = error === null ? addresses.find(({ address }) => !isPublicAddress(address)) : undefined
    const [first] = addresses ?? []
    if (error !== null) callback(error, '')
    else if (hidden !== undefined) callback(new PrivateAddressError(hostname, hidden.address), '')
    else if (first === undefined) callback(new Error(`${hostname} has no address`), '')
    else if (options.all === true) callback(null, addresses)
    else callback(null, first.address, first.family)
  })
}
