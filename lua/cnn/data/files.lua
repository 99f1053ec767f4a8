-- SPDX-License-Identifier: MIT
-- Well-known data sets from files on this machine. Nothing is downloaded: a missing file is an error
-- that says where it was looked for and how to get it.
local core = require "cnn.core"
local options = require "cnn.options"
local dataset = require "cnn.data.dataset"

local fail = core.fail

local files = {
  read_idx = core.read_idx,     -- read_idx(path): an IDX file's elements, packed by gzip or not
  read_bytes = core.read_bytes, -- read_bytes(path): a file's bytes as a uint8 tensor (mapped)
}

-- ---------------------------------------------------------------------------------------------
-- Finding

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

-- The folders where a data set may lie: `root` alone when it is given; else $CNN_DATA, ./data and the
-- system's. In each the data set's own folders come first.
local function folders(set, root)
  local list = {}
  local function add(base)
    for _, name in ipairs(set.folders) do list[#list + 1] = base .. "/" .. name end
    list[#list + 1] = base
  end
  if root then
    add(root)
    return list
  end
  local chosen = os.getenv("CNN_DATA")
  if chosen and chosen ~= "" then add(chosen) end
  add("data")
  for _, folder in ipairs(set.system or {}) do list[#list + 1] = folder end
  return list
end

-- The path of a file, under one of its names, in the first folder that has it.
local function find(name, set, root, names)
  local places = folders(set, root)
  for _, folder in ipairs(places) do
    for _, file in ipairs(names) do
      if exists(folder .. "/" .. file) then return folder .. "/" .. file end
    end
  end
  return fail(("%s: there is no %s in %s. %s"):format(
    name, table.concat(names, " or "), table.concat(places, ", "), set.help))
end

local function read_options(name, ...)
  local o = options.read(name, { "train", "root" }, ...)
  options.expect(name, "train", o.train, "boolean")
  options.expect(name, "root", o.root, "string")
  if o.train == nil then o.train = true end
  return o
end

-- A data set that knows about itself.
local function described(set, images, labels)
  local ds = dataset.TensorDataset(images, labels)
  ds.images, ds.labels, ds.classes, ds.mean, ds.std = images, labels, set.classes, set.mean, set.std
  return ds
end

-- Labels 0..9 in a file are the classes 1..10 here.
local function check_labels(name, path, labels)
  if #labels > 0 and labels:max():item() > 9 then
    fail(("%s: %s: a label is %d; 0 to 9 are expected"):format(name, path, labels:max():item()))
  end
  return labels:to("int64"):add_(1)
end

-- ---------------------------------------------------------------------------------------------
-- The MNIST family

local MNIST = {
  folders = { "mnist", "MNIST/raw" },
  classes = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" },
  mean = 0.1307, std = 0.3081,
  help = "Put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    .. "t10k-labels-idx1-ubyte (with .gz or without) of the MNIST database into data/mnist, or name their folder: "
    .. "data.mnist{root = ...}, or CNN_DATA",
}

local FASHION = {
  folders = { "fashion-mnist", "fashion_mnist", "FashionMNIST/raw" },
  system = { "/usr/share/datasets/fashion-mnist" },
  classes = {
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
  },
  mean = 0.2860, std = 0.3530,
  help = "On Debian and Ubuntu: apt install dataset-fashion-mnist. Elsewhere put the four .gz files of "
    .. "https://github.com/zalandoresearch/fashion-mnist into data/fashion-mnist, or name their folder: "
    .. "data.fashion_mnist{root = ...}, or CNN_DATA",
}

local function read_mnist(name, set, ...)
  local o = read_options(name, ...)
  local prefix = o.train and "train" or "t10k"
  local function file(kind, dims)
    local plain = ("%s-%s-idx%d-ubyte"):format(prefix, kind, dims)
    return find(name, set, o.root, { plain, plain .. ".gz" })
  end
  local image_file, label_file = file("images", 3), file("labels", 1)
  local images, labels = core.read_idx(image_file), core.read_idx(label_file)
  if images.dtype ~= "uint8" or images.ndim ~= 3 or images:size(2) ~= 28 or images:size(3) ~= 28 then
    fail(("%s: %s: expected uint8 images of shape (N, 28, 28), got %s of shape %s"):format(
      name, image_file, images.dtype, tostring(images.shape)))
  end
  if labels.dtype ~= "uint8" or labels.ndim ~= 1 or #labels ~= #images then
    fail(("%s: %s: expected %d uint8 labels, got %s of shape %s"):format(
      name, label_file, #images, labels.dtype, tostring(labels.shape)))
  end
  return described(set, images:unsqueeze(2), check_labels(name, label_file, labels))
end

-- fashion_mnist{train = true, root =}: a TensorDataset of uint8 images (N, 1, 28, 28) and int64 labels
-- 1..10, with the fields images, labels, classes (names), mean and std (of pixels scaled to 0..1).
function files.fashion_mnist(...)
  return read_mnist("fashion_mnist", FASHION, ...)
end

-- mnist{train = true, root =}: likewise.
function files.mnist(...)
  return read_mnist("mnist", MNIST, ...)
end

-- ---------------------------------------------------------------------------------------------
-- CIFAR-10

local CIFAR = {
  folders = { "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10" },
  classes = { "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck" },
  mean = { 0.4914, 0.4822, 0.4465 }, std = { 0.2470, 0.2435, 0.2616 },
  help = "Unpack the binary version (cifar-10-binary.tar.gz) of https://www.cs.toronto.edu/~kriz/cifar.html into "
    .. "data, or name the folder of its .bin files: data.cifar10{root = ...}, or CNN_DATA (the Python version is "
    .. "made of pickles, which are never read)",
}
local RECORD = 3073 -- a label and 3 * 32 * 32 pixels, by channel

-- cifar10{train = true, root =}: a TensorDataset of uint8 images (N, 3, 32, 32) and int64 labels 1..10.
function files.cifar10(...)
  local o = read_options("cifar10", ...)
  local names = { "test_batch.bin" }
  if o.train then
    for i = 1, 5 do names[i] = ("data_batch_%d.bin"):format(i) end
  end
  local images, labels = {}, {}
  for i, name in ipairs(names) do
    local path = find("cifar10", CIFAR, o.root, { name })
    local bytes = core.read_bytes(path)
    if #bytes % RECORD ~= 0 then
      fail(("cifar10: %s: %d bytes are no whole number of records of %d: truncated"):format(path, #bytes, RECORD))
    end
    local records = bytes:view(-1, RECORD)
    labels[i] = check_labels("cifar10", path, records:select(2, 1))
    images[i] = records:narrow(2, 2, RECORD - 1)
  end
  local cat = core.functions.cat
  return described(CIFAR, cat(images, 1):view(-1, 3, 32, 32), cat(labels, 1))
end

return files
