// node run.js LIBRARY MODEL: run a model with custom operators on ones, and print the shapes of what comes out.
const ort = require("onnxruntime-node");

async function main([library, model]) {
  process.env.OPMATRIX_ORT_LIBRARY = library;
  // onnxruntime-node loads ONNX Runtime with its first session, and the addon needs it loaded: a model that is none will do.
  await ort.InferenceSession.create(new Uint8Array()).catch(() => {});
  process.dlopen({ exports: {} }, `${__dirname}/register.node`);

  const session = await ort.InferenceSession.create(model);
  const feeds = {};
  for (const { name, type, shape } of session.inputMetadata) {
    const size = shape.reduce((a, b) => a * b, 1);
    feeds[name] = new ort.Tensor(type, new Float32Array(size).fill(1), shape);
  }
  const outputs = await session.run(feeds);
  for (const name of session.outputNames) {
    console.log(name, outputs[name].type, outputs[name].dims);
  }
}

main(process.argv.slice(2));
