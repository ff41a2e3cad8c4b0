import { connect, type Socket } from 'node:net'

/** Whether a server greets on a new connection as it does when it is ready, after a question if it needs one. */
export function greets(port: number, greeting: string, question?: string): Promise<boolean> {
  return new Promise<boolean>((resolve) => {
    const socket: Socket = connect(port, '127.0.0.1', () => {
      if (question !== undefined) socket.write(question)
    })
    socket.once('error', () => resolve(false))
    socket.once('close', () => resolve(false))
    socket.once('data', (data) => {
      resolve(data.toString().startsWith(greeting))
      socket.destroy()
    })
  })
}
