/** The client of a request, if known. */
export interface RequestSource {
  /** The address at the other end of the connection; undefined where another server took the request. */
  readonly address: string | undefined
  /** It came in HTTP/1.0, which no browser speaks, but nginx does by default toward what is behind it. */
  readonly oldHttp?: boolean
  /**
   * Whether a response keeps its `content-encoding` on its way. Behind `fetch` that is not known: Next.js removes the header from what a
   * route handler returns, and compresses the body by itself.
   */
  readonly keepsEncoding?: boolean
}

/** Who asks, for the audit and for limits. */
export interface Client {
  readonly name: string | undefined
  readonly address: string | undefined
}

/** Headers that proxies, load balancers and CDNs add, beside all that begin with `x-forwarded-` or `x-original-`. */
const PROXY_HEADERS: ReadonlySet<string> = new Set([
  'via',
  'forwarded',
  'x-forwarded',
  'x-real-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-envoy-external-address',
  'true-client-ip',
  'cf-connecting-ip',
  'cf-ray',
  'fastly-client-ip',
  'fly-client-ip',
  'cdn-loop',
  'x-amzn-trace-id',
])

function isFromProxy({ headers }: Request): boolean {
  for (const name of headers.keys()) {
    if (PROXY_HEADERS.has(name) || name.startsWith('x-forwarded-') || name.startsWith('x-original-')) return true
  }
  return false
}

/** Names and addresses under which only this machine can be meant. */
export function isLoopbackName(hostname: string): boolean {
  const name = hostname.toLowerCase().replace(/^\[|\]$/g, '')
  return name === 'localhost' || name.endsWith('.localhost') || isLoopbackAddress(name)
}

export function isLoopbackAddress(address: string): boolean {
  const plain = address.replace(/^::ffff:/i, '')
  return plain === '::1' || /^127(?:\.\d{1,3}){3}$/.test(plain)
}

/**
 * Whether the request was meant for this machine by one on this machine. A page whose name was made to lead here (DNS rebinding) sends
 * its own name; what came through a proxy came from anywhere. A proxy on this machine that sends a loopback name, speaks HTTP/1.1 and adds
 * no header looks like a browser, and so does a tunnel (ssh -L, kubectl port-forward).
 */
export function isFromHere(request: Request, { address, oldHttp }: RequestSource): boolean {
  const { headers } = request
  const host = headers.get('host')
  return (
    isLoopbackName(new URL(request.url).hostname) &&
    (host === null || isLoopbackName(hostnameOf(host))) &&
    (address === undefined || isLoopbackAddress(address)) &&
    oldHttp !== true &&
    !isFromProxy(request)
  )
}

function hostnameOf(host: string): string {
  return host.replace(/:\d*$/, '')
}

/** For what only reads: a browser says where it comes from, and other sites have no business here. */
export function isCrossSite({ headers }: Request): boolean {
  const site = headers.get('sec-fetch-site')
  return site !== null && site !== 'same-origin' && site !== 'none'
}

/** For what changes something: it must be said, and be our own page. */
export function isFromOwnPage(request: Request): boolean {
  const { headers } = request
  const site = headers.get('sec-fetch-site')
  if (site !== null && site !== 'same-origin') return false
  const origin = headers.get('origin')
  if (origin === null) return site === 'same-origin'
  // By the host alone: a proxy that ends TLS in front of us turns https into http.
  return URL.canParse(origin) && new URL(origin).host === (headers.get('host') ?? new URL(request.url).host)
}

export function isSecure(request: Request): boolean {
  return new URL(request.url).protocol === 'https:' || request.headers.get('x-forwarded-proto') === 'https'
}
