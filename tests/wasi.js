// node wasi.js PROGRAM ARGUMENT... - runs a WebAssembly program with WASI: it sees all files and our environment, its status is ours.
const fs = require('fs')
const { WASI } = require('wasi')
const args = process.argv.slice(2)
const wasi = new WASI({ version: 'preview1', args, env: process.env, preopens: { '/': '/' }, returnOnExit: true })
const program = new WebAssembly.Module(fs.readFileSync(args[0]))
process.exitCode = wasi.start(new WebAssembly.Instance(program, { wasi_snapshot_preview1: wasi.wasiImport }))
