// SPDX-License-Identifier: MIT
// The functions of cuBLASLt and cuDNN that the plugin uses, each of which opens its library at the
// first call: the first use of a GPU waits for neither, and where one is missing own kernels
// compute. (Not a part of the simulator's plugin, which has stand-ins in it.)
#include <cublasLt.h>
#include <cudnn_graph.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

enum { BLAS, DNN, LIBRARIES };

static const char *const names[LIBRARIES] = {
    [BLAS] = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
    [DNN] = "libcudnn.so." TEXT(CUDNN_MAJOR),
};
static void *libraries[LIBRARIES];
static char reasons[LIBRARIES][160] = {"it is too old", "it is too old"}; // why a call went nowhere
static pthread_once_t once[LIBRARIES] = {PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT};

static void open_library(int i) {
  libraries[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!libraries[i]) snprintf(reasons[i], sizeof reasons[i], "%s", dlerror());
}
static void open_blas(void) {
  open_library(BLAS);
}
static void open_dnn(void) {
  open_library(DNN);
}

// The address of a function into the pointer at `function`, which stays NULL when it is missing.
static void find(int library, const char *name, void *function) {
  pthread_once(&once[library], library == BLAS ? open_blas : open_dnn);
  void *address = libraries[library] ? dlsym(libraries[library], name) : NULL;
  memcpy(function, &address, sizeof address); // data to function: as POSIX allows
}

#define LATE(library, result, missing, name, parameters, arguments)                                \
  result name parameters {                                                                         \
    static __typeof__(name) *function;                                                             \
    if (!function) find(library, #name, &function);                                                \
    return function ? function arguments : missing;                                                \
  }

LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtCreate,
     (cublasLtHandle_t * lightHandle), (lightHandle))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtDestroy,
     (cublasLtHandle_t lightHandle), (lightHandle))
LATE(BLAS, const char *, reasons[BLAS], cublasLtGetStatusString, (cublasStatus_t status), (status))
LATE(BLAS, size_t, 0, cublasLtGetVersion, (void), ())
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatmul,
     (cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc, const void *alpha,
      const void *A, cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc,
      const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
      cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace,
      size_t workspaceSizeInBytes, cudaStream_t stream),
     (lightHandle, computeDesc, alpha, A, Adesc, B, Bdesc, beta, C, Cdesc, D, Ddesc, algo,
      workspace, workspaceSizeInBytes, stream))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatmulAlgoGetHeuristic,
     (cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
      cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc,
      cublasLtMatrixLayout_t Ddesc, cublasLtMatmulPreference_t preference, int requestedAlgoCount,
      cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount),
     (lightHandle, operationDesc, Adesc, Bdesc, Cdesc, Ddesc, preference, requestedAlgoCount,
      heuristicResultsArray, returnAlgoCount))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatmulDescInit_internal,
     (cublasLtMatmulDesc_t matmulDesc, size_t size, cublasComputeType_t computeType,
      cudaDataType_t scaleType),
     (matmulDesc, size, computeType, scaleType))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatmulDescSetAttribute,
     (cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr, const void *buf,
      size_t sizeInBytes),
     (matmulDesc, attr, buf, sizeInBytes))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatmulPreferenceInit_internal,
     (cublasLtMatmulPreference_t pref, size_t size), (pref, size))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatmulPreferenceSetAttribute,
     (cublasLtMatmulPreference_t pref, cublasLtMatmulPreferenceAttributes_t attr, const void *buf,
      size_t sizeInBytes),
     (pref, attr, buf, sizeInBytes))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatrixLayoutInit_internal,
     (cublasLtMatrixLayout_t matLayout, size_t size, cudaDataType type, uint64_t rows,
      uint64_t cols, int64_t ld),
     (matLayout, size, type, rows, cols, ld))
LATE(BLAS, cublasStatus_t, CUBLAS_STATUS_NOT_INITIALIZED, cublasLtMatrixLayoutSetAttribute,
     (cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr, const void *buf,
      size_t sizeInBytes),
     (matLayout, attr, buf, sizeInBytes))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnBackendCreateDescriptor,
     (cudnnBackendDescriptorType_t descriptorType, cudnnBackendDescriptor_t *descriptor),
     (descriptorType, descriptor))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnBackendDestroyDescriptor,
     (cudnnBackendDescriptor_t descriptor), (descriptor))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnBackendExecute,
     (cudnnHandle_t handle, cudnnBackendDescriptor_t executionPlan,
      cudnnBackendDescriptor_t variantPack),
     (handle, executionPlan, variantPack))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnBackendFinalize,
     (cudnnBackendDescriptor_t descriptor), (descriptor))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnBackendGetAttribute,
     (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t attributeName,
      cudnnBackendAttributeType_t attributeType, int64_t requestedElementCount,
      int64_t *elementCount, void *arrayOfElements),
     (descriptor, attributeName, attributeType, requestedElementCount, elementCount,
      arrayOfElements))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnBackendSetAttribute,
     (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t attributeName,
      cudnnBackendAttributeType_t attributeType, int64_t elementCount, const void *arrayOfElements),
     (descriptor, attributeName, attributeType, elementCount, arrayOfElements))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnCreate, (cudnnHandle_t * handle),
     (handle))
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnDestroy, (cudnnHandle_t handle),
     (handle))
LATE(DNN, const char *, reasons[DNN], cudnnGetErrorString, (cudnnStatus_t status), (status))
void cudnnGetLastErrorString(char *message, size_t max_size) {
  static __typeof__(cudnnGetLastErrorString) *function;
  if (!function) find(DNN, "cudnnGetLastErrorString", &function);
  if (function)
    function(message, max_size);
  else if (max_size > 0)
    *message = '\0';
}
LATE(DNN, size_t, 0, cudnnGetVersion, (void), ())
LATE(DNN, cudnnStatus_t, CUDNN_STATUS_NOT_INITIALIZED, cudnnSetStream,
     (cudnnHandle_t handle, cudaStream_t streamId), (handle, streamId))
