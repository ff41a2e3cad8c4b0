// For the bundlers that bring no server of their own.
import { createServer } from 'node:http'
import { site, work } from './work.js'

async function answer(response) {
  try {
    response.end(JSON.stringify(await work()))
  } catch (error) {
    response.writeHead(500).end(String(error.stack))
  }
}

const server = createServer((request, response) => {
  if (request.url === '/check') void answer(response)
  else site.listener(request, response)
})
server.listen(Number(process.env.PORT), '127.0.0.1')
