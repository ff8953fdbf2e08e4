class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._dataset = loader.dataset
        self._batches = iter(loader.dataset)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._batches)


class DataLoader:
    def __init__(self, dataset, batch_size=1):
        self.dataset, self.batch_size = dataset, batch_size

    def __iter__(self):
        return _BaseDataLoaderIter(self)
